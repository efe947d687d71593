"""plan.py PREFIX... -> plan json of the targets that begin so, for what exists."""
import json,os,sys,subprocess,collections
from pathlib import Path
HERE=Path(__file__).parent; R=Path(sys.argv[1]); out=sys.argv[2]; pre=sys.argv[3:]
m=json.load(open(os.environ['OLD_TO_NEW']))
m.update(json.load(open(HERE/'extra.json')))
t=collections.OrderedDict()
for o,n in m.items():
    if any(n.startswith(p) for p in pre) and (R/o).exists(): t.setdefault(n,[]).append(o)
t={n:os_ for n,os_ in t.items() if not(len(os_)==1 and os_[0]==n)}
names=json.load(open(HERE/'names.json'))
json.dump({'targets':t,'names':names,'docs':{k:v for p in HERE.glob('docs_*.json') for k,v in json.load(open(p)).items() if k in t}},open(out,'w'),indent=1)
for n,os_ in t.items(): print(n,'<-',*os_)

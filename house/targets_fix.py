import ast,re
p='tests/mutants/targets.py'; s=open(p).read()
t=ast.parse(s)
for n in ast.walk(t):
    if isinstance(n,ast.Dict) and any(isinstance(k,ast.Constant) and str(k.value).endswith('.py') for k in n.keys):
        seen={}; ent=[]
        for k,v in zip(n.keys,n.values):
            key=ast.get_source_segment(s,k) if k else None
            val=ast.get_source_segment(s,v)
            if key and key in seen: ent[seen[key]][1].append(val)
            else:
                if key: seen[key]=len(ent)
                ent.append([key,[val]])
        if not any(len(v)>1 for _,v in ent): continue
        out='{\n'
        for k,v in ent:
            if k is None: out+=f'    **{v[0]},\n'
            else: out+=f'    {k}: {v[0] if len(v)==1 else "("+", ".join("*"+x for x in v)+")"},\n'
        out+='}'
        old=ast.get_source_segment(s,n)
        s=s.replace(old,out)
open(p,'w').write(s)

"""Merge modules by a plan: python house/move.py CHECKOUT PLAN.json; changes CHECKOUT in place."""
import ast,builtins,collections,json,re,shutil,subprocess,sys
from pathlib import Path
R=Path(sys.argv[1]).resolve();O=R
PLAN=json.load(open(sys.argv[2]))  # {"targets": {new: [old,...]}, "names": {"module:name": new}, "docs": {new: text}}
old2new={o:t for t,os_ in PLAN['targets'].items() for o in os_}
NAMES={tuple(k.split(':')):v for k,v in PLAN.get('names',{}).items()}
DOCS=PLAN.get('docs',{})
BI=set(dir(builtins))
def dotted(p): return p[:-3].replace('/','.').removesuffix('.__init__')
allpy=subprocess.check_output(['git','ls-files','*.py'],cwd=R,text=True).split()
mod={dotted(p):p for p in allpy}
newof={dotted(k):dotted(v) for k,v in old2new.items()}
src={p:(R/p).read_text() for p in allpy}
tree={p:ast.parse(src[p]) for p in allpy}
def binds(node):
    """names bound in this function/lambda/comprehension scope (not nested)"""
    b=set();g=set()
    def tgt(t):
        for n in ast.walk(t):
            if isinstance(n,ast.Name): b.add(n.id)
    def visit(n,top=False):
        if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef)) and not top: b.add(n.name); return
        if isinstance(n,ast.ClassDef) and not top: b.add(n.name); return
        if isinstance(n,ast.Lambda) and not top: return
        if isinstance(n,(ast.ListComp,ast.SetComp,ast.DictComp,ast.GeneratorExp)) and not top:
            for w in ast.walk(n):
                if isinstance(w,ast.NamedExpr): b.add(w.target.id)
            return
        if isinstance(n,ast.Name) and isinstance(n.ctx,(ast.Store,ast.Del)): b.add(n.id)
        elif isinstance(n,(ast.Import,ast.ImportFrom)):
            for a in n.names: b.add((a.asname or a.name).split('.')[0])
        elif isinstance(n,ast.ExceptHandler) and n.name: b.add(n.name)
        elif isinstance(n,(ast.MatchAs,ast.MatchStar)) and n.name: b.add(n.name)
        elif isinstance(n,ast.Global): g.update(n.names)
        for c in ast.iter_child_nodes(n): visit(c)
    if isinstance(node,(ast.FunctionDef,ast.AsyncFunctionDef,ast.Lambda)):
        a=node.args
        for x in [*a.posonlyargs,*a.args,*a.kwonlyargs,a.vararg,a.kwarg]:
            if x: b.add(x.arg)
        for st in (node.body if isinstance(node.body,list) else [node.body]): visit(st)
    else:
        for gen in node.generators: tgt(gen.target)
    return b-g
class Glob(ast.NodeVisitor):
    """collect Name nodes that refer to module scope"""
    def __init__(s): s.stack=[];s.out=[]
    def fn(s,n):
        for d in getattr(n,'decorator_list',[]): s.visit(d)
        a=n.args
        for d in [*a.defaults,*[x for x in a.kw_defaults if x]]: s.visit(d)
        for x in [*a.posonlyargs,*a.args,*a.kwonlyargs,a.vararg,a.kwarg]:
            if x and x.annotation: s.visit(x.annotation)
        if getattr(n,'returns',None): s.visit(n.returns)
        s.stack.append(binds(n))
        for st in (n.body if isinstance(n.body,list) else [n.body]): s.visit(st)
        s.stack.pop()
    visit_FunctionDef=visit_AsyncFunctionDef=visit_Lambda=fn
    def comp(s,n):
        s.visit(n.generators[0].iter)
        s.stack.append(binds(n))
        for i,g in enumerate(n.generators):
            if i: s.visit(g.iter)
            for c in g.ifs: s.visit(c)
            s.visit(g.target)
        for f in ('elt','key','value'):
            if hasattr(n,f): s.visit(getattr(n,f))
        s.stack.pop()
    visit_ListComp=visit_SetComp=visit_DictComp=visit_GeneratorExp=comp
    def visit_ClassDef(s,n):
        for d in n.decorator_list: s.visit(d)
        for b in n.bases: s.visit(b)
        for k in n.keywords: s.visit(k.value)
        cb=set()
        for st in n.body:
            if isinstance(st,(ast.FunctionDef,ast.ClassDef)): cb.add(st.name)
            elif isinstance(st,ast.Assign): cb|={t.id for t in st.targets if isinstance(t,ast.Name)}
            elif isinstance(st,ast.AnnAssign) and isinstance(st.target,ast.Name) and st.value is not None: cb.add(st.target.id)
        seen=set()
        for st in n.body:
            if isinstance(st,(ast.FunctionDef,ast.AsyncFunctionDef)): 
                s.visit(st)
            else:
                # class-level names: fields shadow only after being bound
                s.stack.append(set(seen))
                if isinstance(st,ast.AnnAssign):
                    s.visit(st.annotation)
                    if st.value: s.visit(st.value)
                elif isinstance(st,ast.Assign): s.visit(st.value)
                else: s.visit(st)
                s.stack.pop()
            if isinstance(st,ast.AnnAssign) and isinstance(st.target,ast.Name) and st.value is not None: seen.add(st.target.id)
            elif isinstance(st,ast.Assign): seen|={t.id for t in st.targets if isinstance(t,ast.Name)}
            elif isinstance(st,(ast.FunctionDef,ast.ClassDef)): seen.add(st.name)
    def visit_AnnAssign(s,n):
        s.visit(n.annotation)
        if n.value: s.visit(n.value)
        if not isinstance(n.target,ast.Name) or not s.inclass: s.visit(n.target)
    inclass=False
    def visit_Name(s,n):
        if not any(n.id in b for b in s.stack): s.out.append(n)
def globs(t):
    g=Glob()
    for st in t.body: 
        if not isinstance(st,(ast.Import,ast.ImportFrom)): g.visit(st)
    return g.out
def topdefs(t):
    d={}
    for n in t.body:
        if isinstance(n,(ast.FunctionDef,ast.ClassDef,ast.AsyncFunctionDef)): d[n.name]=n
        elif isinstance(n,ast.Assign):
            for x in n.targets:
                for y in ast.walk(x):
                    if isinstance(y,ast.Name): d[y.id]=n
        elif isinstance(n,ast.AnnAssign) and isinstance(n.target,ast.Name): d[n.target.id]=n
    return d
by=collections.OrderedDict()
for k,v in old2new.items(): by.setdefault(v,[]).append(k)
defs={p:topdefs(tree[p]) for p in old2new}
def topo_olds(olds):
    dep={p:set() for p in olds}
    for p in olds:
        for im in tree[p].body:
            if isinstance(im,ast.ImportFrom):
                for a in im.names:
                    for c in (f'{im.module}.{a.name}',im.module):
                        if c in mod and mod[c] in dep and mod[c]!=p: dep[p].add(mod[c])
    order=[];seen=set()
    def go(p):
        if p in seen: return
        seen.add(p)
        for d in sorted(dep[p]): go(d)
        order.append(p)
    for p in olds: go(p)
    return order
# final names
final={} # (oldmodule,name)->new name
dropped=set() # (path,node id) duplicates
force=set()
for T,olds in by.items():
    for p in olds:
        loc={x.id for x in ast.walk(tree[p]) if isinstance(x,ast.Name) and isinstance(x.ctx,ast.Store)}|{a.arg for a in ast.walk(tree[p]) if isinstance(a,ast.arg)}
        al={}
        for im in tree[p].body:
            if isinstance(im,ast.ImportFrom):
                for a in im.names:
                    f=f'{im.module}.{a.name}'
                    if newof.get(f)==dotted(T): al[a.asname or a.name]=f
        for x in ast.walk(tree[p]):
            if isinstance(x,ast.Attribute) and isinstance(x.value,ast.Name) and x.value.id in al and x.attr in loc: force.add((al[x.value.id],x.attr))
for T,olds in by.items():
    own={}
    for p in topo_olds(olds):
        for n,node in defs[p].items():
            seg=ast.get_source_segment(src[p],node)
            if (dotted(p),n) in NAMES: new=NAMES[(dotted(p),n)]; assert new not in own,(p,new); final[(dotted(p),n)]=new; own[new]=(p,seg); continue
            if (dotted(p),n) in force: new=f'{n}_{Path(p).stem}'; final[(dotted(p),n)]=new; own[new]=(p,seg); print('FORCE',T,n); continue
            if n in own:
                q,qseg=own[n]
                if seg==qseg and isinstance(node,(ast.Assign,ast.AnnAssign)) and re.search(r'TypeVar|get_logger|= *[\d"(]',seg) and not re.search(r'Decoder',seg): final[(dotted(p),n)]=n; dropped.add((p,n)); continue
                new=f'{n}_{Path(p).stem}' if Path(p).stem!='__init__' else n+'_2'
                final[(dotted(p),n)]=new; own[new]=(p,seg); print('RENAME',T,p,n,'->',new)
            elif n in BI and len(olds)>1:
                others=any(x.id==n and n not in defs[q] for q in olds if q!=p for x in globs(tree[q]))
                new=n+'_of_'+Path(p).stem if others else n
                if others: print('BUILTIN',T,p,n)
                final[(dotted(p),n)]=new; own[new]=(p,seg)
            else: final[(dotted(p),n)]=n; own[n]=(p,seg)
def resolve(base,name):
    """origin of `from base import name`: ('mod',newmod) or ('name',newmod,newname) or None for foreign"""
    full=f'{base}.{name}'
    if full in newof: return ('mod',newof[full],full)
    if full in mod and full.split('.')[0] in('pipeline','monitor','checks','alerts'): return ('pkg',full)
    if base in newof:
        if (base,name) not in final:
            for n in imports_of(tree[mod[base]]):
                for a in n.names:
                    if isinstance(n,ast.ImportFrom) and (a.asname or a.name)==name: return resolve(n.module,a.name)
        return ('name',newof[base],final.get((base,name),name),base,name)
    return None
def imports_of(t): return [n for n in t.body if isinstance(n,(ast.Import,ast.ImportFrom))]
def edit(text,edits):
    lines=text.split('\n'); off=[0]
    b=text.encode()
    lb=[l.encode() for l in lines]
    for l in lb: off.append(off[-1]+len(l)+1)
    es=sorted(((off[l-1]+c,off[l2-1]+c2,new) for l,c,l2,c2,new in edits),reverse=True)
    for a,z,new in es: b=b[:a]+new.encode()+b[z:]
    return b.decode()
strings_left=[]
def docs_of(T,olds):
    own=[p for p in olds if Path(p).stem==Path(T).stem] or [max(olds,key=lambda p:len(src[p]))]
    rest=[p for p in olds if p not in own]
    return '\n\n'.join(ast.get_docstring(tree[p]) or '' for p in own+rest if ast.get_docstring(tree[p]))
def build(T,olds):
    docs=[];bodies={};imps=collections.OrderedDict()
    ownfinal={final[(dotted(p),n)] for p in olds for n in defs[p]}
    taken={n:('def',) for n in ownfinal}
    deps=collections.defaultdict(set)
    for p in olds:
        t=tree[p];loc={};edits=[]
        lines=src[p].split('\n')
        local={}  # local name -> ('final',name) for names
        modal={}
        for im in imports_of(t):
            if isinstance(im,ast.Import):
                for a in im.names:
                    nm=newof.get(a.name,a.name)
                    if nm==dotted(T): continue
                    key=('import',nm,a.asname); b=a.asname or a.name.split('.')[0]
                    root=('import',b) if not a.asname else key
                    if taken.get(b,root)!=root: raise SystemExit(f'import clash {T} {b}')
                    taken[b]=root; imps[key]=f'import {nm}'+(f' as {a.asname}' if a.asname else '')
            else:
                for a in im.names:
                    b=a.asname or a.name; r=resolve(im.module,a.name)
                    if r and r[0]=='mod':
                        if r[1]==dotted(T): modal[b]=r[2]; deps[p].add(mod[r[2]]); continue
                        key=('m',r[1],b,r[2]); want=b
                    elif r and r[0]=='name':
                        if r[1]==dotted(T): local[b]=r[2]; deps[p].add(mod[r[3]]); continue
                        key=('n',r[1],r[2]); want=b
                    else: key=('f',im.module,a.name); want=b
                    if key in imps: local[b]=imps[key][1]; continue
                    w=want
                    if w in taken and taken[w]!=key:
                        print('ALIAS',T,p,w,key); w=f'{want}_{"_".join(im.module.split(".")[-2:])}'
                    # another constituent uses this builtin name?
                    taken[w]=key
                    if key[0]=='m': pk,nm=r[1].rsplit('.',1); line=(pk,nm,w)
                    elif key[0]=='n': line=(r[1],r[2],w)
                    else: line=(im.module,a.name,w)
                    imps[key]=(line,w); local[b]=w
        for n,_ in defs[p].items(): local[n]=final[(dotted(p),n)]
        for nm in globs(t):
            if nm.id in modal: continue
            if nm.id in local and local[nm.id]!=nm.id: edits.append((nm.lineno,nm.col_offset,nm.end_lineno,nm.end_col_offset,local[nm.id]))
        gn={id(x):x for x in globs(t)}
        for at in ast.walk(t):
            if isinstance(at,ast.Attribute) and isinstance(at.value,ast.Name) and id(at.value) in gn and at.value.id in modal:
                f=final.get((modal[at.value.id],at.attr),at.attr)
                edits.append((at.value.lineno,at.value.col_offset,at.end_lineno,at.end_col_offset,f))
        others={}
        for im in imports_of(t):
            if isinstance(im,ast.ImportFrom):
                for a in im.names:
                    r=resolve(im.module,a.name)
                    if r and r[0]=='mod' and r[1]!=dotted(T): others[a.asname or a.name]=r[2]
        for at in ast.walk(t):
            if isinstance(at,ast.Attribute) and isinstance(at.value,ast.Name) and id(at.value) in gn and at.value.id in others:
                f=final.get((others[at.value.id],at.attr),at.attr)
                if f!=at.attr: edits.append((at.end_lineno,at.end_col_offset-len(at.attr.encode()),at.end_lineno,at.end_col_offset,f))
        # names of defs themselves
        for n,node in defs[p].items():
            f=final[(dotted(p),n)]
            if f!=n:
                if isinstance(node,(ast.FunctionDef,ast.ClassDef)):
                    l=lines[node.lineno-1]; c=l.index(n,node.col_offset); c=len(l[:c].encode()); edits.append((node.lineno,c,node.lineno,c+len(n.encode()),f))
                else:
                    for y in ast.walk(node.targets[0] if isinstance(node,ast.Assign) else node.target):
                        if isinstance(y,ast.Name) and y.id==n: edits.append((y.lineno,y.col_offset,y.end_lineno,y.end_col_offset,f))
        # cut docstring and imports and dropped duplicates
        cut=[]
        for i,n in enumerate(t.body):
            if i==0 and isinstance(n,ast.Expr) and isinstance(n.value,ast.Constant): docs.append(ast.get_docstring(t)); cut.append(n)
            elif isinstance(n,(ast.Import,ast.ImportFrom)): cut.append(n)
            elif isinstance(n,(ast.Assign,ast.AnnAssign)):
                x=(n.targets[0] if isinstance(n,ast.Assign) else n.target)
                if isinstance(x,ast.Name) and (p,x.id) in dropped: cut.append(n)
        rng=[(n.lineno,n.end_lineno) for n in cut]
        edits=[e for e in set(edits) if not any(a<=e[0]<=z for a,z in rng)]
        body=edit(src[p],edits).split('\n')
        keep=[l for i,l in enumerate(body,1) if not any(a<=i<=z for a,z in rng)]
        bodies[p]='\n'.join(keep).strip('\n')
        # references to module alias of other target with renamed attr: adjust
        for f in re.findall(r'"((?:pipeline|monitor|checks|alerts)\.[a-z_.]+)"',src[p]):
            if f in newof and newof[f]!=f: strings_left.append((p,f))
    order=topo_olds(olds)
    g=collections.OrderedDict()
    plain=[]
    for k,v in imps.items():
        if isinstance(v,str): plain.append(v)
        else:
            (m,n,w),_=v; g.setdefault(m,[]).append(n if n==w else f'{n} as {w}')
    imptxt='\n'.join(sorted(set(plain))+[f'from {m} import ('+', '.join(sorted(set(v)))+')' if len(v)>1 else f'from {m} import {v[0]}' for m,v in sorted(g.items())])
    text=DOCS.get(T) or docs_of(T,olds)
    doc='"""'+text.replace('\\','\\\\')+('\n' if '\n' in text else '')+'"""\n\n' 
    return doc+imptxt+'\n\n\n'+'\n\n\n'.join(bodies[p] for p in order if bodies[p])+'\n'
def inner(T,txt):
    """Imports that do not stand at the top: of old modules, or of what is in T itself by now."""
    t=ast.parse(txt); edits=[]
    def walk(body,parent):
        left=0
        for n in body:
            if isinstance(n,ast.ImportFrom) and parent is not t and n.module:
                parts=[];gone=0
                for a in n.names:
                    b=a.asname or a.name; r=resolve(n.module,a.name)
                    if r is None or r[0]=='pkg': parts.append(f'from {n.module} import {a.name}'+(f' as {a.asname}' if a.asname else ''))
                    elif r[0]=='mod':
                        if r[1]==dotted(T): print('SELF MODULE',T,b); 
                        pk,nm=r[1].rsplit('.',1); parts.append(f'from {pk} import {nm}'+(f' as {b}' if nm!=b else ''))
                    elif r[1]==dotted(T):
                        gone+=1
                        if r[2]!=b: print('SELF ALIAS',T,b,r[2])
                    else: parts.append(f'from {r[1]} import {r[2]}'+(f' as {b}' if r[2]!=b else ''))
                ind=' '*n.col_offset
                edits.append((n.lineno,n.col_offset,n.end_lineno,n.end_col_offset,('\n'+ind).join(parts) if parts else 'pass'))
                left+=1
            else:
                for f in ('body','orelse','handlers','finalbody'):
                    c=getattr(n,f,None)
                    if isinstance(c,list): walk(c,n)
    walk(t.body,t)
    txt=edit(txt,edits) if edits else txt
    txt=re.sub(r'^if TYPE_CHECKING:\n((?:    pass\n)+)(?!    )','',txt,flags=re.M)
    txt=re.sub(r'^(if TYPE_CHECKING:\n(?:    .*\n)*?)(?:    pass\n)+',r'\1',txt,flags=re.M)
    return txt
out={}
for T,olds in by.items(): out[T]=inner(T,build(T,olds))
for p in old2new: (O/p).unlink()
for T,txt in out.items():
    f=O/T; f.parent.mkdir(parents=True,exist_ok=True); f.write_text(txt)
    d=f.parent
    while d!=O:
        if not (d/'__init__.py').exists(): (d/'__init__.py').write_text('"""."""\n')
        d=d.parent
for d in sorted({Path(p).parent for p in allpy if p.split('/')[0] in('pipeline','monitor','checks','alerts')},key=lambda d:-len(d.parts)):
    f=O/d
    if False and f.exists() and not any(x.suffix=='.py' and x.name!='__init__.py' for x in f.rglob('*.py')):
        shutil.rmtree(f)
# everything else: tests, bench, demo, grafana, examples
n=0
for p in allpy:
    if p in old2new: continue
    t=tree[p];edits=[];alias={}
    for im in ast.walk(t):
        if isinstance(im,ast.ImportFrom) and im.module:
            for a in im.names:
                r=resolve(im.module,a.name)
                if r and r[0]=='mod': alias[a.asname or a.name]=r[2]
    for at in ast.walk(t):
        if isinstance(at,ast.Attribute) and isinstance(at.value,ast.Name) and at.value.id in alias:
            f=final.get((alias[at.value.id],at.attr),at.attr)
            if f!=at.attr: edits.append((at.end_lineno,at.end_col_offset-len(at.attr.encode()),at.end_lineno,at.end_col_offset,f))
        if isinstance(at,ast.Call) and ast.unparse(at.func).endswith(('setattr','delattr')) and len(at.args)>1 and isinstance(at.args[0],ast.Name) and at.args[0].id in alias and isinstance(at.args[1],ast.Constant):
            n0=at.args[1].value; f=final.get((alias[at.args[0].id],n0),n0)
            if f!=n0: edits.append((at.args[1].lineno,at.args[1].col_offset,at.args[1].end_lineno,at.args[1].end_col_offset,'"'+f+'"'))
    for im in ast.walk(t):
        if isinstance(im,ast.ImportFrom) and im.module:
            rs=[(a,resolve(im.module,a.name)) for a in im.names]
            if any(r for _,r in rs):
                parts=[]
                for a,r in rs:
                    b=a.asname or a.name
                    if r is None: parts.append(f'from {im.module} import {a.name}'+(f' as {a.asname}' if a.asname else ''))
                    elif r[0]=='pkg': parts.append(f'from {im.module} import {a.name}'+(f' as {a.asname}' if a.asname else ''))
                    elif r[0]=='mod': pk,nm=r[1].rsplit('.',1); parts.append(f'from {pk} import {nm}'+(f' as {b}' if nm!=b else ''))
                    else: parts.append(f'from {r[1]} import {r[2]}'+(f' as {b}' if r[2]!=b else ''))
                ind=' '*im.col_offset
                edits.append((im.lineno,im.col_offset,im.end_lineno,im.end_col_offset,('\n'+ind).join(parts)))
        elif isinstance(im,ast.Import):
            for a in im.names:
                if a.name in newof and newof[a.name]!=a.name: edits.append((im.lineno,im.col_offset,im.end_lineno,im.end_col_offset,f'import {newof[a.name]} as {a.asname or a.name}'))
    txt=edit(src[p],edits) if edits else src[p]
    # string references "pipeline.x.y.Name"
    def sub(m):
        s=m.group(2)
        for k in sorted(newof,key=len,reverse=True):
            if s==k or s.startswith(k+'.'):
                rest=s[len(k):]
                if rest:
                    nm=rest[1:].split('.')[0]; rest='.'+final.get((k,nm),nm)+rest[1+len(nm):]
                return m.group(1)+newof[k]+rest+m.group(3)
        return m.group(0)
    txt2=re.sub(r'(["\'])((?:pipeline|monitor|checks|alerts)(?:\.\w+)+)(["\'])',sub,txt)
    if txt2!=src[p]: (O/p).write_text(txt2); n+=1
for T in out:
    txt=(O/T).read_text()
    txt2=re.sub(r'(["\'])((?:pipeline|monitor|checks|alerts)(?:\.\w+)+)(["\'])',lambda m:m.group(1)+newof.get(m.group(2),m.group(2))+m.group(3),txt)
    if txt2!=txt: (O/T).write_text(txt2)
print('targets',len(out),'other files edited',n); print('strings',strings_left)

for d in sorted({(O/k).parent for k in old2new},key=lambda d:-len(d.parts)):
    if d.exists() and not [x for x in d.iterdir() if x.name not in ('__init__.py','__pycache__')]:
        shutil.rmtree(d); print('REMOVED',d.relative_to(R))
paths={k:v for k,v in old2new.items() if k!=v}
ds={dotted(k):dotted(v) for k,v in paths.items()}
for p in subprocess.check_output(['git','ls-files'],cwd=R,text=True).split('\n'):
    if not p.endswith(('.md','.toml','.py','.cfg','.yml','.yaml','.txt','.in','.csv')) or p.startswith('tests/stored/') or not (R/p).exists(): continue
    t=t0=(R/p).read_text()
    for k,v in sorted(paths.items(),key=lambda x:-len(x[0])):
        if k in t: t=re.sub(r'(?<![\w/])'+re.escape(k)+r'(?!\w)',v,t)
    if not p.endswith('.py'):
        for k,v in sorted(ds.items(),key=lambda x:-len(x[0])):
            if k in t: t=re.sub(r'(?<![\w/.])'+re.escape(k)+r'(?!\w)',v,t)
    else:
        # docstrings: `Covers pipeline.a.b` and roles :func:`pipeline.a.b.c`
        def sub2(m):
            d=m.group(0)
            for k in sorted(newof,key=len,reverse=True):
                if d==k or d.startswith(k+'.'):
                    rest=d[len(k):]
                    if rest:
                        nm=rest[1:].split('.')[0]; rest='.'+final.get((k,nm),nm)+rest[1+len(nm):]
                    return newof[k]+rest
            return d
        t='\n'.join(l if re.match(r'\s*(from|import) ',l) else re.sub(r'(?<![\w/.])(?:pipeline|monitor|checks|alerts)(?:\.\w+)+',sub2,l) for l in t.split('\n'))
    if t!=t0: (R/p).write_text(t); print('TEXT',p)

p=R/'pyproject.toml'; t=p.read_text()
t=re.sub(r'^ *"([\w.]+) -> \1", *\n','',t,flags=re.M)
ls=[];seen=set();block=''
for l in t.split('\n'):
    if l.startswith('['): seen=set()
    k=l.strip()
    if re.match(r'"[^"]+\.py"( = .*)?,?$',k) or ' -> ' in k and k.startswith('"'):
        if k in seen: continue
        seen.add(k)
    ls.append(l)
p.write_text('\n'.join(ls))

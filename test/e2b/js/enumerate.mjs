// Derives the public calls of an SDK from its type declarations, with the TypeScript compiler: methods and
// getters of the public classes ("Sandbox.create"), public functions, and the options that they take
// ("Sandbox.create:metadata"). Usage: node enumerate.mjs TYPESCRIPT_DIR PACKAGE_DIR...
import { createRequire } from 'node:module'
import { join } from 'node:path'

const [tsDir, ...packages] = process.argv.slice(2)
const ts = createRequire(import.meta.url)(join(tsDir, 'typescript'))

// What is part of every call's contract is listed once, under its own name.
const shared = new Set(['ConnectionOpts', 'VolumeApiOpts'])
const gitShared = new Set(['cwd', 'envs', 'timeoutMs', 'user'])
// Classes that carry wire details and are no calls for users; errors have cases of their own.
const internal = /^(ApiClient|ConnectionConfig|VolumeConnectionConfig|ClientFactory)$|Error$/
// An option that is an object of options again.
const nested = { 'Sandbox.create': ['network', 'lifecycle'], 'Sandbox.list': ['query'] }
const rename = { TemplateBase: 'Template', SandboxApi: 'Sandbox' }

const entries = packages.map((p) => join(p, 'dist/index.d.ts'))
const program = ts.createProgram(entries, { strict: true, moduleResolution: ts.ModuleResolutionKind.Node10, target: ts.ScriptTarget.ES2022, skipLibCheck: true, types: ['node'], typeRoots: [join(tsDir, '@types')] })
const checker = program.getTypeChecker()
const calls = new Set()

const ours = (sym) => sym?.declarations?.some((d) => !program.isSourceFileDefaultLibrary(d.getSourceFile()) && !/typescript|@types|undici/.test(d.getSourceFile().fileName))
const hidden = (sym) => sym.declarations?.some((d) => (ts.getCombinedModifierFlags(d) & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected)) || ts.getJSDocTags(d).some((t) => ['internal', 'hidden', 'hide'].includes(t.tagName.text)))
const parentName = (sym) => sym.declarations?.[0]?.parent?.name?.text ?? sym.declarations?.[0]?.parent?.parent?.name?.text

function optionsOf(type, id, prefix = '') {
  const parts = type.isUnion() ? type.types : [type]
  for (const t of parts) {
    if (!(t.flags & ts.TypeFlags.Object) && !t.isIntersection()) continue
    if (t.getCallSignatures().length || checker.isArrayType(t)) continue
    const sym = t.aliasSymbol ?? t.symbol
    if (sym && sym.name !== '__type' && !ours(sym)) if (!t.aliasSymbol || !/^(Pick|Partial|Omit)$/.test(sym.name)) continue
    if (sym && (sym.flags & ts.SymbolFlags.Class || /^Template(Builder|Final)$/.test(sym.name))) continue
    if (checker.getIndexInfosOfType(t).length) continue
    for (const p of checker.getPropertiesOfType(t)) {
      if (!ours(p)) continue
      const from = parentName(p)
      if (shared.has(from)) { if (!hidden(p)) calls.add(`${from}:${p.name}`); continue }
      calls.add(id.startsWith('Git.') && gitShared.has(p.name) ? `GitRequestOpts:${p.name}` : `${id}:${prefix}${p.name}`)
      if (nested[id]?.includes(p.name)) optionsOf(checker.getTypeOfSymbol(p), id, p.name + '.')
    }
  }
}

function signatures(type, id) {
  for (const s of type.getCallSignatures()) {
    for (const p of s.getParameters()) {
      const decl = p.valueDeclaration ?? p.declarations[0]
      optionsOf(checker.getNonNullableType(checker.getTypeOfSymbolAtLocation(p, decl)), id)
    }
  }
}

function classCalls(name, type) {
  for (const p of checker.getPropertiesOfType(type)) {
    if (p.name === 'prototype' || hidden(p) || !ours(p)) continue
    const t = checker.getTypeOfSymbol(p)
    const id = `${name}.${p.name}`
    if (t.getCallSignatures().length) {
      calls.add(id)
      signatures(t, id)
    } else if (p.flags & ts.SymbolFlags.Accessor) calls.add(id)
  }
}

for (const entry of entries) {
  const module = checker.getSymbolAtLocation(program.getSourceFile(entry))
  for (let sym of checker.getExportsOfModule(module)) {
    if (sym.flags & ts.SymbolFlags.Alias) sym = checker.getAliasedSymbol(sym)
    const name = rename[sym.name] ?? sym.name
    if (internal.test(name) || !ours(sym)) continue
    if (sym.flags & ts.SymbolFlags.Class) {
      const instance = checker.getDeclaredTypeOfSymbol(sym)
      classCalls(name, instance)
      classCalls(name, checker.getTypeOfSymbol(sym))
      if (name === 'E2B') calls.add('E2B')
    } else if (sym.flags & ts.SymbolFlags.Function) {
      calls.add(name)
    }
  }
}
for (const c of calls) console.log(c)

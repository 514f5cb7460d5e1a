//! A whole program: symbols of its modules resolved, variables placed and initialised, functions compiled.

use crate::codegen::analysis::{Facts, facts, register_pressure};
use crate::codegen::call::frame_bytes;
use crate::codegen::func::{FuncGen, Gen, Refusal, function_signature};
use crate::exec::context::CodePtr;
use crate::exec::pool::Core;
use crate::exec::slot::STACK_MARGIN;
use crate::program::{Code, Kernel, KernelCode, KernelInfo, LoadError, Machine, ParamInfo, Program};
use crate::rt::syscalls;
use cranelift_codegen::Context;
use cranelift_codegen::isa::{OwnedTargetIsa, TargetFrontendConfig};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId as ClifFuncId, Module as _, default_libcall_names};
use outboard_ptx::Space;
use outboard_ptx::ir::{Body, Callee, FuncId, Function, GlobalId, Linkage, Module, Signature, Symbol};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// Function addresses in PTX are handles: this, plus the index in the program's table shifted left. No memory is ever there.
pub(crate) const HANDLE_BASE: u64 = 0x00f0_0000_0000_0000;
pub(crate) const HANDLE_SHIFT: u32 = 4;
/// Least stack of a coroutine, beside what is known to be needed.
const STACK_SLACK: u64 = 32 << 10;

/// What a direct call reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A function of the program, by index.
    Compiled(usize),
    /// A runtime function, by address.
    Runtime(usize),
}

/// Where a variable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Memory {
        addr: u64,
        size: u64,
    },
    /// In the shared memory of a block.
    Shared {
        offset: u32,
        size: u64,
    },
    /// The dynamic shared memory of a block.
    Dynamic,
}

/// A function with a body.
pub(crate) struct Compiled {
    pub(crate) clif: ClifFuncId,
    module: usize,
    id: FuncId,
}

/// What the code generator of a function needs to know about the program.
pub(crate) struct Unit {
    pub(crate) functions: Vec<Compiled>,
    signatures: Vec<Vec<(String, Signature)>>,
    targets: Vec<Vec<Option<Target>>>,
    places: Places,
    /// Names of the variables, for messages.
    variables: Vec<Vec<String>>,
    runtime: Vec<usize>,
    /// Address of the table of code pointers for indirect calls, and its length.
    pub(crate) table: u64,
    pub(crate) functions_in_table: usize,
    /// Ranges of `.const` variables.
    pub(crate) constants: Vec<(u64, u64)>,
    pub(crate) arena_span: u64,
    pub(crate) has_fma: bool,
    pub(crate) frontend: TargetFrontendConfig,
}

impl Unit {
    pub(crate) fn target(&self, module: usize, id: FuncId) -> Gen<Target> {
        self.targets[module][id.0 as usize]
            .ok_or_else(|| Refusal::Undefined(self.signatures[module][id.0 as usize].0.clone()))
    }

    pub(crate) fn place(&self, module: usize, id: GlobalId) -> Gen<Place> {
        self.places[module][id.0 as usize]
            .ok_or_else(|| Refusal::Undefined(self.variables[module][id.0 as usize].clone()))
    }

    pub(crate) fn signature<'s>(&'s self, module: usize, callee: &'s Callee) -> Option<&'s Signature> {
        match callee {
            Callee::Direct(id) => self.signatures[module].get(id.0 as usize).map(|(_, sig)| sig),
            Callee::Indirect { sig, .. } => Some(sig),
        }
    }

    /// The value that PTX code sees as the address of a function.
    pub(crate) fn handle(&self, module: usize, id: FuncId) -> Gen<u64> {
        let index = match self.target(module, id)? {
            Target::Compiled(index) => index,
            Target::Runtime(address) => {
                self.functions.len() + self.runtime.iter().position(|&a| a == address).unwrap_or(0)
            }
        };
        Ok(HANDLE_BASE + ((index as u64) << HANDLE_SHIFT))
    }
}

/// The functions that programs declare and the runtime defines.
fn runtime_function(name: &str) -> Option<usize> {
    Some(match name {
        "vprintf" => syscalls::vprintf as *const () as usize,
        "malloc" => syscalls::malloc as *const () as usize,
        "free" => syscalls::free as *const () as usize,
        "__assertfail" => syscalls::assertfail as *const () as usize,
        _ if name.starts_with("cuda") || name.starts_with("__cudaCDP") => syscalls::device_launch as *const () as usize,
        _ => return None,
    })
}

/// Instruction set of this machine with all it offers.
pub(crate) fn host_isa() -> Result<OwnedTargetIsa, String> {
    let mut flags = settings::builder();
    let verify = if cfg!(debug_assertions) { "true" } else { "false" };
    for (name, value) in [
        ("opt_level", "speed"),
        ("is_pic", "false"),
        ("enable_verifier", verify),
        ("enable_probestack", "false"),
        ("unwind_info", "false"),
    ] {
        flags.set(name, value).map_err(|e| e.to_string())?;
    }
    let builder = cranelift_native::builder().map_err(str::to_owned)?;
    builder.finish(settings::Flags::new(flags)).map_err(|e| e.to_string())
}

fn has_fma(isa: &OwnedTargetIsa) -> bool {
    // Elsewhere than on x86 the instruction is part of the base set.
    !cfg!(target_arch = "x86_64")
        || isa.isa_flags().iter().any(|flag| flag.name == "has_fma" && flag.as_bool() == Some(true))
}

/// Compiles modules that form one program.
pub(crate) fn load(core: &Arc<Core>, isa: &OwnedTargetIsa, modules: &[&Module]) -> Result<Arc<Program>, LoadError> {
    let mut machine = JITModule::new(JITBuilder::with_isa(isa.clone(), default_libcall_names()));
    let internal = |function: &str, e: &dyn std::fmt::Display| LoadError::Codegen {
        function: function.into(),
        message: e.to_string(),
    };
    let signature = function_signature(isa.default_call_conv());
    let mut functions = Vec::new();
    for (module, ir) in modules.iter().enumerate() {
        for (id, function) in ir.functions.iter().enumerate().filter(|(_, f)| f.body.is_some()) {
            let clif = machine.declare_anonymous_function(&signature).map_err(|e| internal(&function.name, &e))?;
            functions.push(Compiled { clif, module, id: FuncId(id as u32) });
        }
    }
    let targets = resolve_functions(modules, &functions)?;
    let mut variables = Variables { core, owned: Vec::new() };
    let (places, globals) = variables.place(modules)?;
    let mut runtime: Vec<usize> = targets
        .iter()
        .flatten()
        .filter_map(|target| match target {
            Some(Target::Runtime(address)) => Some(*address),
            _ => None,
        })
        .collect();
    runtime.sort_unstable();
    runtime.dedup();
    let mut table = vec![0u64; functions.len() + runtime.len()].into_boxed_slice();
    let constants = modules
        .iter()
        .zip(&places)
        .flat_map(|(ir, places)| ir.globals.iter().zip(places))
        .filter_map(|(global, place)| match place {
            Some(Place::Memory { addr, size }) if global.space == Space::Const => Some((*addr, *size)),
            _ => None,
        })
        .collect();
    let unit = Unit {
        signatures: modules
            .iter()
            .map(|ir| ir.functions.iter().map(|f| (f.name.clone(), f.sig.clone())).collect())
            .collect(),
        variables: modules.iter().map(|ir| ir.globals.iter().map(|g| g.name.clone()).collect()).collect(),
        functions_in_table: table.len(),
        table: table.as_ptr() as u64,
        functions,
        targets,
        places,
        runtime,
        constants,
        arena_span: core.memory.span(),
        has_fma: has_fma(isa),
        frontend: isa.frontend_config(),
    };
    initialise(&unit, modules);

    let facts = all_facts(&unit, modules);
    let mut builder_context = FunctionBuilderContext::new();
    let mut context = machine.make_context();
    let mut frames = Vec::with_capacity(unit.functions.len());
    for (index, compiled) in unit.functions.iter().enumerate() {
        let function = function_of(modules, compiled);
        let Some(body) = &function.body else { continue };
        context.func.signature = signature.clone();
        let builder = FunctionBuilder::new(&mut context.func, &mut builder_context);
        FuncGen::generate(builder, &unit, compiled.module, index, function, body, &facts[index])?;
        dump(&function.name, &mut context, isa);
        machine
            .define_function(compiled.clif, &mut context)
            .map_err(|e| internal(&function.name, &format!("{e:?}")))?;
        let frame = context
            .compiled_code()
            .and_then(|code| code.buffer.frame_layout())
            .map_or(0, |layout| u64::from(layout.frame_to_fp_offset));
        frames.push(frame + 32);
        machine.clear_context(&mut context);
    }
    machine.finalize_definitions().map_err(|e| internal("", &e))?;
    let addresses: Vec<u64> = unit.functions.iter().map(|f| machine.get_finalized_function(f.clif) as u64).collect();
    let code_pointers = addresses.iter().copied().chain(unit.runtime.iter().map(|&a| a as u64));
    table.iter_mut().zip(code_pointers).for_each(|(slot, address)| *slot = address);

    let graph = CallGraph::new(&unit, modules, facts, frames);
    let code = Arc::new(Code {
        functions: unit.functions.iter().map(|f| function_of(modules, f).name.clone()).collect(),
        variables: std::mem::take(&mut variables.owned),
        core: core.clone(),
        _machine: Machine(ManuallyDrop::new(machine)),
        _table: table,
    });
    let const_bytes = unit.constants.iter().map(|&(_, size)| size).sum::<u64>() as u32;
    let shared_total = shared_extents(modules);
    let mut kernels = BTreeMap::new();
    for (index, compiled) in unit.functions.iter().enumerate() {
        let function = function_of(modules, compiled);
        let (Some(entry), Some(body)) = (&function.entry, &function.body) else { continue };
        let ir = modules[compiled.module];
        let kernel_code = graph.kernel(index, addresses[index]);
        let volume = |dims: [u32; 3]| dims.iter().product::<u32>().min(1024);
        let info = KernelInfo {
            shared_bytes: if modules.len() == 1 { entry.static_shared } else { shared_total },
            local_bytes: kernel_code.local_bytes as u32,
            const_bytes,
            registers: register_pressure(body).clamp(16, 255),
            max_threads: entry.req_ntid.or(entry.max_ntid).map_or(1024, volume),
            required_block: entry.req_ntid,
            required_cluster: entry.req_cluster,
            target_sm: ir.target_sm,
            params: function
                .sig
                .params
                .iter()
                .map(|p| ParamInfo { offset: p.offset, size: p.size, align: p.align })
                .collect(),
            params_size: function.sig.params_size,
        };
        let kernel = Arc::new(Kernel { name: function.name.clone(), info, code: kernel_code, program: code.clone() });
        if kernels.insert(function.name.clone(), kernel).is_some() {
            return Err(LoadError::Duplicate(function.name.clone()));
        }
    }
    Ok(Arc::new(Program { kernels, globals, _code: code }))
}

/// For people who work on the code generator: `OUTBOARD_SIMT_DUMP` names a directory for intermediate and machine code.
fn dump(name: &str, context: &mut Context, isa: &OwnedTargetIsa) {
    let Some(directory) = std::env::var_os("OUTBOARD_SIMT_DUMP") else { return };
    let directory = std::path::PathBuf::from(directory);
    let short: String = name.chars().take(80).collect();
    let _ = std::fs::write(directory.join(format!("{short}.clif")), context.func.display().to_string());
    let mut copy = Context::for_function(context.func.clone());
    copy.set_disasm(true);
    if let Ok(code) = copy.compile(&**isa, &mut Default::default()) {
        let _ = std::fs::write(directory.join(format!("{short}.asm")), code.vcode.clone().unwrap_or_default());
    }
}

fn function_of<'m>(modules: &[&'m Module], compiled: &Compiled) -> &'m Function {
    &modules[compiled.module].functions[compiled.id.0 as usize]
}

/// Chooses among definitions of one name: `strong` ones exclude each other, and hide weak ones.
fn export<T: Copy>(
    map: &mut HashMap<String, (bool, T)>,
    name: &str,
    linkage: Linkage,
    value: T,
) -> Result<(), LoadError> {
    let strong = !matches!(linkage, Linkage::Weak | Linkage::Common);
    match map.get(name) {
        Some((true, _)) if strong => return Err(LoadError::Duplicate(name.into())),
        Some((present, _)) if *present || !strong => {}
        _ => _ = map.insert(name.into(), (strong, value)),
    }
    Ok(())
}

fn resolve_functions(modules: &[&Module], functions: &[Compiled]) -> Result<Vec<Vec<Option<Target>>>, LoadError> {
    let mut exported: HashMap<String, (bool, usize)> = HashMap::new();
    let mut own: HashMap<(usize, u32), usize> = HashMap::new();
    for (index, compiled) in functions.iter().enumerate() {
        own.insert((compiled.module, compiled.id.0), index);
        let function = function_of(modules, compiled);
        if function.linkage != Linkage::Internal {
            export(&mut exported, &function.name, function.linkage, index)?;
        }
    }
    Ok(modules
        .iter()
        .enumerate()
        .map(|(module, ir)| {
            let resolve = |(id, function): (usize, &Function)| {
                let shared = || exported.get(&function.name).map(|&(_, index)| Target::Compiled(index));
                match own.get(&(module, id as u32)) {
                    Some(&index) if function.linkage == Linkage::Internal => Some(Target::Compiled(index)),
                    Some(&index) => shared().or(Some(Target::Compiled(index))),
                    None => shared().or_else(|| runtime_function(&function.name).map(Target::Runtime)),
                }
            };
            ir.functions.iter().enumerate().map(resolve).collect()
        })
        .collect())
}

/// Bytes of shared memory that each module's variables take when several modules are linked: each module's follow those before.
fn shared_extent(ir: &Module) -> u32 {
    let ends = ir
        .globals
        .iter()
        .filter(|g| g.space == Space::Shared && !g.is_dynamic_shared())
        .map(|g| g.shared_offset.saturating_add(g.size as u32));
    ends.max().unwrap_or(0).checked_next_multiple_of(128).unwrap_or(u32::MAX)
}

fn shared_extents(modules: &[&Module]) -> u32 {
    modules.iter().fold(0, |sum, ir| shared_extent(ir).saturating_add(sum))
}

/// Variables in device memory; freed again when loading fails.
struct Variables<'c> {
    core: &'c Arc<Core>,
    owned: Vec<u64>,
}

type Globals = BTreeMap<String, (u64, u64)>;
type Places = Vec<Vec<Option<Place>>>;

impl Variables<'_> {
    fn place(&mut self, modules: &[&Module]) -> Result<(Places, Globals), LoadError> {
        let mut exported: HashMap<String, (bool, (usize, usize))> = HashMap::new();
        for (module, ir) in modules.iter().enumerate() {
            for (id, global) in ir.globals.iter().enumerate() {
                if !matches!(global.linkage, Linkage::Internal | Linkage::Extern) && global.space != Space::Shared {
                    export(&mut exported, &global.name, global.linkage, (module, id))?;
                }
            }
        }
        let mut places: Places = modules.iter().map(|ir| vec![None; ir.globals.len()]).collect();
        let mut globals = Globals::new();
        let mut shared_base = 0u32;
        for (module, ir) in modules.iter().enumerate() {
            for (id, global) in ir.globals.iter().enumerate() {
                let chosen = exported.get(&global.name).map(|(_, at)| *at);
                places[module][id] = if global.is_dynamic_shared() {
                    Some(Place::Dynamic)
                } else if global.space == Space::Shared {
                    let base = if modules.len() == 1 { 0 } else { shared_base };
                    Some(Place::Shared { offset: base.saturating_add(global.shared_offset), size: global.size })
                } else if global.linkage == Linkage::Internal || chosen == Some((module, id)) {
                    let addr = self.core.memory.alloc(global.size.max(1), global.align.into())?;
                    self.owned.push(addr);
                    globals.entry(global.name.clone()).or_insert((addr, global.size));
                    Some(Place::Memory { addr, size: global.size })
                } else {
                    None
                };
            }
            shared_base = shared_base.saturating_add(shared_extent(ir));
        }
        for (module, ir) in modules.iter().enumerate() {
            for (id, global) in ir.globals.iter().enumerate() {
                if places[module][id].is_none()
                    && let Some((_, (owner, index))) = exported.get(&global.name)
                {
                    places[module][id] = places[*owner][*index];
                }
            }
        }
        Ok((places, globals))
    }
}

impl Drop for Variables<'_> {
    fn drop(&mut self) {
        for addr in self.owned.drain(..) {
            self.core.memory.free(addr);
        }
    }
}

/// Writes the initial contents of all variables, addresses in them included.
fn initialise(unit: &Unit, modules: &[&Module]) {
    for (module, ir) in modules.iter().enumerate() {
        for (id, global) in ir.globals.iter().enumerate() {
            let Some(Place::Memory { addr, size }) = unit.places[module][id] else { continue };
            if matches!(global.linkage, Linkage::Extern) {
                continue;
            }
            let size = size as usize;
            let length = global.init.len().min(size);
            // SAFETY: the variable was allocated with `size` bytes for this program, which nobody runs yet.
            unsafe {
                std::ptr::write_bytes(addr as *mut u8, 0, size);
                std::ptr::copy_nonoverlapping(global.init.as_ptr(), addr as *mut u8, length);
            }
            for reloc in &global.relocs {
                let target = match reloc.target {
                    Symbol::Global(id) => match unit.places[module][id.0 as usize] {
                        Some(Place::Memory { addr, .. }) => addr,
                        Some(Place::Shared { offset, .. }) => offset.into(),
                        Some(Place::Dynamic) | None => 0,
                    },
                    Symbol::Func(id) => unit.handle(module, id).unwrap_or(0),
                };
                let value = (target.wrapping_add(reloc.addend as u64) >> reloc.shift).to_le_bytes();
                let bytes = (reloc.bytes as usize).min(8);
                if reloc.offset as usize + bytes <= size {
                    // SAFETY: inside the variable, as just checked.
                    unsafe {
                        std::ptr::copy_nonoverlapping(value.as_ptr(), (addr + reloc.offset) as *mut u8, bytes);
                    }
                }
            }
        }
    }
}

/// Facts about all functions. Whether a function reads strongly includes its callees, so it is found first.
fn all_facts(unit: &Unit, modules: &[&Module]) -> Vec<Facts> {
    let bodies: Vec<(usize, &Body)> =
        unit.functions.iter().filter_map(|f| Some((f.module, function_of(modules, f).body.as_ref()?))).collect();
    let first: Vec<Facts> = bodies.iter().map(|(_, body)| facts(body, &|_| false)).collect();
    let mut strong: Vec<bool> = first.iter().map(|f| f.strong_reads).collect();
    loop {
        let mut changed = false;
        for (index, f) in first.iter().enumerate() {
            let module = bodies[index].0;
            let calls_strong = f.indirect_calls && strong.contains(&true)
                || f.callees.iter().any(|&id| matches!(unit.target(module, id), Ok(Target::Compiled(i)) if strong[i]));
            if calls_strong && !strong[index] {
                strong[index] = true;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    bodies
        .iter()
        .map(|&(module, body)| {
            facts(body, &|callee| match callee {
                Some(id) => matches!(unit.target(module, id), Ok(Target::Compiled(i)) if strong[i]),
                None => strong.contains(&true),
            })
        })
        .collect()
}

/// Who calls whom, and what that needs.
struct CallGraph {
    edges: Vec<BTreeSet<usize>>,
    facts: Vec<Facts>,
    /// Bytes of native stack and of local memory per activation.
    frames: Vec<u64>,
    locals: Vec<u64>,
}

impl CallGraph {
    fn new(unit: &Unit, modules: &[&Module], facts: Vec<Facts>, frames: Vec<u64>) -> CallGraph {
        let compiled = |module: usize, id: FuncId| match unit.target(module, id) {
            Ok(Target::Compiled(index)) => Some(index),
            _ => None,
        };
        // An indirect call may reach whatever has its address taken, in code or in an initialiser.
        let mut addressed: BTreeSet<usize> = BTreeSet::new();
        for (function, f) in unit.functions.iter().zip(&facts) {
            addressed.extend(f.addressed.iter().filter_map(|&id| compiled(function.module, id)));
        }
        for (module, ir) in modules.iter().enumerate() {
            for reloc in ir.globals.iter().flat_map(|g| &g.relocs) {
                if let Symbol::Func(id) = reloc.target {
                    addressed.extend(compiled(module, id));
                }
            }
        }
        let edges = unit
            .functions
            .iter()
            .zip(&facts)
            .map(|(function, f)| {
                let mut edges: BTreeSet<usize> =
                    f.callees.iter().filter_map(|&id| compiled(function.module, id)).collect();
                if f.indirect_calls {
                    edges.extend(&addressed);
                }
                edges
            })
            .collect();
        let locals = unit
            .functions
            .iter()
            .map(|f| {
                let body = function_of(modules, f).body.as_ref();
                // Room to align the frame is part of it, where more is asked for than frames have anyway.
                let slack = |body: &Body| if body.frame_align > 16 { u64::from(body.frame_align) } else { 0 };
                body.map_or(0, |body| frame_bytes(unit, f.module, body) + slack(body))
            })
            .collect();
        CallGraph { edges, facts, frames, locals }
    }

    fn kernel(&self, index: usize, address: u64) -> KernelCode {
        let mut reachable = BTreeSet::from([index]);
        let mut work = vec![index];
        while let Some(function) = work.pop() {
            work.extend(self.edges[function].iter().filter(|&&next| reachable.insert(next)));
        }
        let any = |property: fn(&Facts) -> bool| reachable.iter().any(|&f| property(&self.facts[f]));
        let spins = any(Facts::spins);
        let depth = self.longest(index, &reachable);
        let sum = |bytes: &[u64]| reachable.iter().map(|&f| bytes[f]).sum::<u64>();
        // Of a recursion every function has room once; the rest is the stack limit's.
        let (local_bytes, frame_bytes) = depth.unwrap_or_else(|| (sum(&self.locals), sum(&self.frames)));
        // SAFETY: the address is that of a finished function with this signature, in memory that the program keeps.
        let entry = unsafe { std::mem::transmute::<u64, CodePtr>(address) };
        KernelCode {
            entry,
            coroutines: spins || any(|f| f.waits),
            spins,
            uses_clusters: any(|f| f.clusters),
            recursive: depth.is_none(),
            local_bytes,
            frame_bytes,
            largest_frame: reachable.iter().map(|&f| self.frames[f]).max().unwrap_or(0),
            stack_base: STACK_MARGIN + STACK_SLACK,
        }
    }

    /// The most local memory and native stack of a chain of calls, or `None` when there are cycles.
    fn longest(&self, root: usize, reachable: &BTreeSet<usize>) -> Option<(u64, u64)> {
        // Takes functions whose callees are all done, again and again: what is left over is in or above a cycle.
        let mut done: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        loop {
            let before = done.len();
            for &f in reachable {
                if done.contains_key(&f) {
                    continue;
                }
                let below: Option<Vec<(u64, u64)>> = self.edges[f].iter().map(|next| done.get(next).copied()).collect();
                if let Some(below) = below {
                    let local = below.iter().map(|b| b.0).max().unwrap_or(0);
                    let frame = below.iter().map(|b| b.1).max().unwrap_or(0);
                    done.insert(f, (self.locals[f] + local, self.frames[f] + frame));
                }
            }
            if done.len() == before {
                return done.get(&root).copied();
            }
        }
    }
}

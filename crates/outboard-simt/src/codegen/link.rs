//! Linking: which definition a name means, where variables are, and what they hold at first.

use crate::codegen::program::{Compiled, Place, Places, Target, Unit, function_of};
use crate::exec::pool::Core;
use crate::program::LoadError;
use crate::rt::syscalls;
use outboard_ptx::Space;
use outboard_ptx::ir::{Function, Linkage, Module, Symbol};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The functions that programs declare and the runtime defines.
fn runtime_function(name: &str) -> Option<usize> {
    Some(match name {
        "vprintf" => syscalls::vprintf as *const () as usize,
        "malloc" => syscalls::malloc as *const () as usize,
        "free" => syscalls::free as *const () as usize,
        "__assertfail" => syscalls::assertfail as *const () as usize,
        "cudaGraphSetConditional" => syscalls::set_conditional as *const () as usize,
        _ if name.starts_with("cuda") || name.starts_with("__cudaCDP") => {
            syscalls::device_launch as *const () as usize
        }
        _ => return None,
    })
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

/// What each function of each module means: a definition of its own or of another module, or one of
/// the runtime's.
pub(crate) fn resolve_functions(
    modules: &[&Module],
    functions: &[Compiled],
) -> Result<Vec<Vec<Option<Target>>>, LoadError> {
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
                let shared =
                    || exported.get(&function.name).map(|&(_, index)| Target::Compiled(index));
                match own.get(&(module, id as u32)) {
                    Some(&index) if function.linkage == Linkage::Internal => {
                        Some(Target::Compiled(index))
                    }
                    Some(&index) => shared().or(Some(Target::Compiled(index))),
                    None => {
                        shared().or_else(|| runtime_function(&function.name).map(Target::Runtime))
                    }
                }
            };
            ir.functions.iter().enumerate().map(resolve).collect()
        })
        .collect())
}

/// Bytes of shared memory that each module's variables take when several modules are linked: each
/// module's follow those before.
fn shared_extent(ir: &Module) -> u32 {
    let ends = ir
        .globals
        .iter()
        .filter(|g| g.space == Space::Shared && !g.is_dynamic_shared())
        .map(|g| g.shared_offset.saturating_add(g.size as u32));
    ends.max().unwrap_or(0).checked_next_multiple_of(128).unwrap_or(u32::MAX)
}

/// Bytes of shared memory of all modules together.
pub(crate) fn shared_extents(modules: &[&Module]) -> u32 {
    modules.iter().fold(0, |sum, ir| shared_extent(ir).saturating_add(sum))
}

/// Variables in device memory; freed again when loading fails.
pub(crate) struct Variables<'c> {
    core: &'c Arc<Core>,
    owned: Vec<u64>,
}

/// Address and size of variables, by name.
type Globals = BTreeMap<String, (u64, u64)>;

impl<'c> Variables<'c> {
    pub(crate) fn new(core: &'c Arc<Core>) -> Self {
        Variables { core, owned: Vec::new() }
    }

    /// The addresses, which the caller will free.
    pub(crate) fn keep(mut self) -> Vec<u64> {
        std::mem::take(&mut self.owned)
    }

    /// Allocates every variable that is defined, and finds those that are declared: in another
    /// module, or among `symbols`.
    pub(crate) fn place(
        &mut self,
        modules: &[&Module],
        symbols: &[(String, u64)],
    ) -> Result<(Places, Globals), LoadError> {
        let mut exported: HashMap<String, (bool, (usize, usize))> = HashMap::new();
        for (module, ir) in modules.iter().enumerate() {
            for (id, global) in ir.globals.iter().enumerate() {
                if !matches!(global.linkage, Linkage::Internal | Linkage::Extern)
                    && global.space != Space::Shared
                {
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
                    Some(Place::Shared {
                        offset: base.saturating_add(global.shared_offset),
                        size: global.size,
                    })
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
                if places[module][id].is_some() {
                    continue;
                }
                if let Some((_, (owner, index))) = exported.get(&global.name) {
                    places[module][id] = places[*owner][*index];
                } else if global.space == Space::Global
                    && let Some((_, addr)) = symbols.iter().find(|(name, _)| *name == global.name)
                {
                    // What lies there is not known here: each access is checked as it is made.
                    places[module][id] = Some(Place::Memory { addr: *addr, size: 0 });
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
pub(crate) fn initialise(unit: &Unit, modules: &[&Module]) {
    for (module, ir) in modules.iter().enumerate() {
        for (id, global) in ir.globals.iter().enumerate() {
            let Some(Place::Memory { addr, size }) = unit.places[module][id] else { continue };
            if matches!(global.linkage, Linkage::Extern) {
                continue;
            }
            let size = size as usize;
            let length = global.init.len().min(size);
            // SAFETY: the variable was allocated with `size` bytes for this program, which nobody
            // runs yet.
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
                        std::ptr::copy_nonoverlapping(
                            value.as_ptr(),
                            (addr + reloc.offset) as *mut u8,
                            bytes,
                        );
                    }
                }
            }
        }
    }
}

//! What the interpreted thread sees of the machine: memory, addresses, special registers.

use crate::ir::{GlobalId, Module, SpecialReg, Symbol};
use crate::types::Space;

/// Why interpretation stopped early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// `exit`; not a failure.
    #[error("the thread has exited")]
    Exit,
    /// `trap`, at this line of the PTX text.
    #[error("trap in line {0}")]
    Trap(u32),
    /// A bad access to memory.
    #[error("an access of {size} bytes at {addr:#x} is out of range or misaligned")]
    Fault {
        /// Address of the first byte.
        addr: u64,
        /// Number of bytes.
        size: u32,
    },
    /// The limit on instructions is reached.
    #[error("more instructions than allowed")]
    Steps,
    /// The limit on nested calls is reached.
    #[error("calls are nested too deeply")]
    Depth,
    /// An operation among threads, or a call of a function without a body.
    #[error("line {line}: {what} cannot be interpreted for a single thread")]
    NotScalar {
        /// Line in the PTX text, from 1.
        line: u32,
        /// The operation or the function.
        what: String,
    },
}

/// Surroundings of the interpreted thread. All state spaces share one set of addresses.
pub trait World {
    /// Fills `bytes` from memory; false if it is not there.
    fn load(&mut self, addr: u64, bytes: &mut [u8]) -> bool;
    /// Writes `bytes` to memory; false if it is not there.
    fn store(&mut self, addr: u64, bytes: &[u8]) -> bool;
    /// Address of a variable or function.
    fn address(&self, symbol: Symbol) -> u64;
    /// The state space in which an address lies.
    fn space(&self, addr: u64) -> Space;
    /// Value of a special register.
    fn special(&self, sreg: SpecialReg) -> u64;
}

/// A flat memory that starts at [`Flat::BASE`]: the module's variables, then room for data.
#[derive(Clone, Debug)]
pub struct Flat {
    /// Memory from [`Flat::BASE`] on.
    pub bytes: Vec<u8>,
    /// Address of each variable of the module.
    pub globals: Vec<u64>,
    spaces: Vec<(u64, u64, Space)>,
    /// First address behind the variables, a multiple of 256: where callers may keep data.
    pub data: u64,
}

impl Flat {
    /// Address of the first byte.
    pub const BASE: u64 = 0x1_0000;
    /// What stands for the address of a function: this plus 16 for each.
    const FUNCTIONS: u64 = 0x100;
    /// Bytes that dynamic shared memory gets.
    const DYNAMIC_SHARED: u64 = 4096;

    /// Places the variables of `module`, initialised, and `room` bytes of zeros behind them.
    pub fn new(module: &Module, room: usize) -> Flat {
        let mut end = Flat::BASE;
        let mut flat = Flat { bytes: Vec::new(), globals: Vec::new(), spaces: Vec::new(), data: 0 };
        for global in &module.globals {
            let addr = end.next_multiple_of(u64::from(global.align));
            let size = if global.is_dynamic_shared() { Flat::DYNAMIC_SHARED } else { global.size };
            end = addr + size;
            flat.globals.push(addr);
            flat.spaces.push((addr, end, global.space));
        }
        flat.data = end.next_multiple_of(256);
        flat.bytes = vec![0; (flat.data - Flat::BASE) as usize + room];
        for (index, global) in module.globals.iter().enumerate() {
            let start = (flat.globals[index] - Flat::BASE) as usize;
            flat.bytes[start..start + global.init.len()].copy_from_slice(&global.init);
            for reloc in &global.relocs {
                let value =
                    flat.address(reloc.target).wrapping_add_signed(reloc.addend) >> reloc.shift;
                let at = start + reloc.offset as usize;
                let len = reloc.bytes as usize;
                flat.bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
            }
        }
        flat
    }

    /// Address of a variable by number.
    pub fn global(&self, id: GlobalId) -> u64 {
        self.globals[id.0 as usize]
    }

    fn range(&self, addr: u64, len: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(addr.checked_sub(Flat::BASE)?).ok()?;
        let end = start.checked_add(len)?;
        (end <= self.bytes.len()).then_some(start..end)
    }
}

impl World for Flat {
    fn load(&mut self, addr: u64, bytes: &mut [u8]) -> bool {
        let Some(range) = self.range(addr, bytes.len()) else { return false };
        bytes.copy_from_slice(&self.bytes[range]);
        true
    }

    fn store(&mut self, addr: u64, bytes: &[u8]) -> bool {
        let Some(range) = self.range(addr, bytes.len()) else { return false };
        self.bytes[range].copy_from_slice(bytes);
        true
    }

    fn address(&self, symbol: Symbol) -> u64 {
        match symbol {
            Symbol::Global(id) => self.global(id),
            Symbol::Func(id) => Flat::FUNCTIONS + 16 * u64::from(id.0),
        }
    }

    fn space(&self, addr: u64) -> Space {
        let home = self.spaces.iter().find(|(start, end, _)| (*start..*end).contains(&addr));
        home.map_or(Space::Global, |(_, _, space)| *space)
    }

    /// A single thread: all indices 0, all extents 1.
    fn special(&self, sreg: SpecialReg) -> u64 {
        match sreg {
            SpecialReg::Ntid(_)
            | SpecialReg::Nctaid(_)
            | SpecialReg::NClusterId(_)
            | SpecialReg::ClusterNctaid(_)
            | SpecialReg::ClusterNctaRank
            | SpecialReg::NWarpId
            | SpecialReg::NSmId
            | SpecialReg::LaneMaskEq
            | SpecialReg::LaneMaskLe => 1,
            SpecialReg::LaneMaskGe => 0xffff_ffff,
            SpecialReg::LaneMaskGt => 0xffff_fffe,
            _ => 0,
        }
    }
}

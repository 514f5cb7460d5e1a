//! Virtual memory of the software device.
//!
//! Addresses are reserved in the arena that all devices share. What is mapped there is opened for
//! each device that may use it: as a whole, or, once it is divided, part by part.

mod calls;

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_front::backend::Result;
use outboard_ranges::RangeMap;
use outboard_simt::{Engine, Memory, named_file};
use parking_lot::Mutex;

/// Bytes of which sizes and addresses must be multiples, as on NVIDIA's devices.
pub(crate) const GRANULE: u64 = 2 << 20;

/// Bytes of which addresses of parts of mappings must be multiples.
const PART_ALIGN: u64 = 256;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// What the name of a file with physical memory begins with; the device follows.
pub(crate) const FILE_NAME: &str = "physical-";

/// Physical memory.
pub(crate) struct Physical {
    engine: Arc<Engine>,
    bytes: u64,
    place: Place,
}

/// Where physical memory lies.
enum Place {
    /// In the engine's file, from this offset on.
    Arena(u64),
    /// In a file of its own, which other processes may map.
    File(OwnedFd),
    /// In another process's file.
    Imported(OwnedFd),
}

impl Physical {
    pub(crate) fn new(
        engine: Arc<Engine>,
        device: u32,
        bytes: u64,
        shareable: bool,
    ) -> Result<Physical> {
        let memory = engine.memory();
        let place = if shareable {
            let file = named_file(&format!("outboard-{FILE_NAME}{device}"), bytes)
                .map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
            memory.charge(bytes).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
            Place::File(file)
        } else {
            Place::Arena(
                memory.alloc_physical(bytes).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?,
            )
        };
        Ok(Physical { engine, bytes, place })
    }

    /// Memory of another process, in its file. It does not count as this process's.
    pub(crate) fn import(engine: Arc<Engine>, bytes: u64, file: OwnedFd) -> Physical {
        Physical { engine, bytes, place: Place::Imported(file) }
    }

    /// The file that other processes may map.
    pub(crate) fn shareable(&self) -> Option<BorrowedFd<'_>> {
        match &self.place {
            Place::File(file) | Place::Imported(file) => Some(file.as_fd()),
            Place::Arena(_) => None,
        }
    }

    /// The file and the offset in it.
    fn file(&self) -> Result<(BorrowedFd<'_>, u64)> {
        match &self.place {
            Place::File(file) | Place::Imported(file) => Ok((file.as_fd(), 0)),
            Place::Arena(offset) => {
                let file = self.engine.memory().file().ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
                Ok((file, *offset))
            }
        }
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        match self.place {
            Place::Arena(offset) => self.engine.memory().free_physical(offset),
            Place::File(_) => self.engine.memory().discharge(self.bytes),
            Place::Imported(_) => {}
        }
    }
}

/// What is mapped where.
#[derive(Default)]
pub(crate) struct Mappings(Mutex<RangeMap<u64, Mapping>>);

struct Mapping {
    /// Kept alive.
    memory: Arc<Physical>,
    /// Where in it the mapping begins.
    offset: u64,
    devices: Vec<u32>,
    /// If it is divided: what may be used.
    parts: Option<RangeMap<u64, ()>>,
}

impl Mapping {
    /// Takes access from all devices.
    fn close(&self, engines: &[Arc<Engine>], address: u64, bytes: u64) {
        self.each(engines, |memory| memory.close(address, bytes));
    }

    fn open(&self, engines: &[Arc<Engine>], address: u64, bytes: u64) {
        self.each(engines, |memory| match &self.parts {
            None => memory.open(address, bytes),
            Some(parts) => {
                parts.iter().for_each(|(part, bytes, ())| memory.open_part(part, bytes));
            }
        });
    }

    /// Does this to the memory of each device that may use it.
    fn each(&self, engines: &[Arc<Engine>], change: impl Fn(&Memory)) {
        self.devices.iter().for_each(|device| change(engines[*device as usize].memory()));
    }

    /// Divides it, if it is not divided and devices may use it.
    fn divide(&mut self, engines: &[Arc<Engine>], address: u64, bytes: u64) -> Result<()> {
        if self.parts.is_some() || self.devices.is_empty() {
            return Err(INVALID);
        }
        self.close(engines, address, bytes);
        self.parts = Some(RangeMap::new());
        Ok(())
    }

    fn open_part(&mut self, engines: &[Arc<Engine>], address: u64, bytes: u64) -> Result<()> {
        let parts = self.parts.as_mut().ok_or(INVALID)?;
        if !address.is_multiple_of(PART_ALIGN) || parts.overlaps(address, bytes) {
            return Err(INVALID);
        }
        parts.insert(address, bytes, ());
        self.each(engines, |memory| memory.open_part(address, bytes));
        Ok(())
    }

    fn close_part(&mut self, engines: &[Arc<Engine>], address: u64, bytes: u64) -> Result<()> {
        let parts = self.parts.as_mut().ok_or(INVALID)?;
        if parts.get(address) != Some((bytes, &())) {
            return Err(INVALID);
        }
        parts.remove(address);
        self.each(engines, |memory| memory.close(address, bytes));
        Ok(())
    }
}

impl Mappings {
    /// Whether everything in a range is divided, and no part of it open: nothing queued uses it.
    fn are_closed(&self, range: &Range<u64>) -> bool {
        let mut mappings = self.0.lock();
        mappings
            .beginning_in(range.clone())
            .all(|(_, _, mapping)| mapping.parts.as_ref().is_some_and(RangeMap::is_empty))
    }

    /// Where the allocation lies that starts at an address: the engine in whose file it is, and
    /// offset and bytes there. It is a part of a mapping, or one that is not divided. `None` where
    /// nothing is mapped.
    pub(crate) fn allocation(&self, address: u64) -> Result<Option<(Arc<Engine>, u64, u64)>> {
        let mappings = self.0.lock();
        let Some((base, mapped, mapping)) = mappings.find(address) else { return Ok(None) };
        let within = address - base;
        let bytes = match &mapping.parts {
            Some(parts) => parts.get(address).ok_or(INVALID)?.0,
            None if within == 0 && !mapping.devices.is_empty() => mapped,
            None => return Err(INVALID),
        };
        match mapping.memory.place {
            Place::Arena(place) => {
                Ok(Some((mapping.memory.engine.clone(), place + mapping.offset + within, bytes)))
            }
            // It has a descriptor to be shared by.
            Place::File(_) | Place::Imported(_) => Err(INVALID),
        }
    }
}

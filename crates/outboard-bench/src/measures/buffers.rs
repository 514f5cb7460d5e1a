//! Memory of the host, of each kind, and of the device, with contents that are told apart.

use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr;

use outboard_abi::{CUdeviceptr, CUstream};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::lab::{Lab, LabError, Result, driver};

/// Which way a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToDevice,
    FromDevice,
}

impl Direction {
    pub(super) const BOTH: [Direction; 2] = [Direction::ToDevice, Direction::FromDevice];

    /// As it stands in names of measures.
    pub(super) fn name(self) -> &'static str {
        match self {
            Direction::ToDevice => "h2d",
            Direction::FromDevice => "d2h",
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Direction::ToDevice => "to the device",
            Direction::FromDevice => "from the device",
        }
    }

    pub(super) fn named(name: &str) -> Option<Direction> {
        Direction::BOTH.into_iter().find(|direction| direction.name() == name)
    }
}

/// What kind of memory a program copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Pageable,
    /// Page-locked, of `cuMemHostAlloc`.
    Pinned,
    /// Mapped by the program, page-locked by `cuMemHostRegister`.
    Registered,
    /// As [`Kind::Registered`], a file's memory.
    RegisteredFile,
}

impl Kind {
    /// As it stands in names of measures.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Pageable => "pageable",
            Kind::Pinned => "pinned",
            Kind::Registered => "registered",
            Kind::RegisteredFile => "registered_file",
        }
    }
}

/// Memory of the host, touched.
pub(super) struct Host {
    lab: Lab,
    kind: Kind,
    address: *mut u8,
    bytes: usize,
    /// Whether the driver knows it, for memory that is registered.
    registered: bool,
    /// What a vector owns.
    pageable: Vec<u8>,
    /// The file whose memory it is, which stays open as programs leave it.
    file: Option<OwnedFd>,
}

impl Host {
    pub(super) fn new(lab: Lab, kind: Kind, bytes: usize) -> Result<Host> {
        let mut host = Host {
            lab,
            kind,
            address: ptr::null_mut(),
            bytes,
            registered: false,
            pageable: Vec::new(),
            file: None,
        };
        match kind {
            Kind::Pageable => {
                host.pageable = vec![0; bytes];
                host.address = host.pageable.as_mut_ptr();
            }
            Kind::Pinned => {
                let mut address: *mut c_void = ptr::null_mut();
                driver!(lab.table, cuMemHostAlloc(&mut address, bytes, 0))?;
                host.address = address.cast();
            }
            Kind::Registered | Kind::RegisteredFile => {
                let (address, file) = map(kind, bytes)?;
                (host.address, host.file) = (address.cast(), file);
                driver!(lab.table, cuMemHostRegister_v2(host.address.cast(), bytes, 0))?;
                host.registered = true;
            }
        }
        host.fill(0);
        Ok(host)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes all of it; where the lowest bytes of two seeds differ, every page does.
    pub(super) fn fill(&mut self, seed: u64) {
        // SAFETY: `bytes` bytes belong to this, and no copy is under way.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.address, self.bytes) };
        let mut content = Content::of(seed);
        for (number, page) in bytes.chunks_mut(PAGE).enumerate() {
            page.copy_from_slice(&content.page(number)[..page.len()]);
        }
    }

    /// Whether all of it is what [`Host::fill`] writes: a figure of a copy that did not happen is
    /// worse than none.
    pub(super) fn check(&self, seed: u64) -> Result<()> {
        // SAFETY: the memory is this one's, written, and no copy is under way.
        let bytes = unsafe { std::slice::from_raw_parts(self.address, self.bytes) };
        let mut content = Content::of(seed);
        let other = bytes
            .chunks(PAGE)
            .enumerate()
            .find(|(number, page)| **page != content.page(*number)[..page.len()]);
        match other {
            None => Ok(()),
            Some((number, _)) => {
                let (bytes, at) = (self.bytes, number * PAGE);
                Err(LabError::Wrong(format!(
                    "a copy of {bytes} bytes brought other bytes at {at} or just behind it"
                )))
            }
        }
    }
}

/// What is written and compared at once: also builds without optimisation are to be quick at it.
const PAGE: usize = 4096;

/// What a seed writes.
struct Content {
    seed: u64,
    page: [u8; PAGE],
}

impl Content {
    fn of(seed: u64) -> Content {
        Content { seed, page: [seed as u8; PAGE] }
    }

    /// The page of this number, which begins with it: what arrives at a wrong place is seen.
    fn page(&mut self, number: usize) -> &[u8; PAGE] {
        let head = (self.seed << 40 ^ number as u64).to_ne_bytes();
        self.page[..head.len()].copy_from_slice(&head);
        &self.page
    }
}

/// Memory that a program maps by itself.
fn map(kind: Kind, bytes: usize) -> Result<(*mut c_void, Option<OwnedFd>)> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: new memory, at an address that the kernel chooses.
    unsafe {
        if kind == Kind::RegisteredFile {
            let file = memfd_create("outboard-bench", MemfdFlags::CLOEXEC)?;
            ftruncate(&file, bytes as u64)?;
            Ok((mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, &file, 0)?, Some(file)))
        } else {
            Ok((mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE)?, None))
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.address.is_null() {
            return;
        }
        // After an error of the device these fail; the process is about to end then.
        match self.kind {
            Kind::Pageable => {}
            Kind::Pinned => drop(driver!(self.lab.table, cuMemFreeHost(self.address.cast()))),
            Kind::Registered | Kind::RegisteredFile => {
                if self.registered {
                    let _ = driver!(self.lab.table, cuMemHostUnregister(self.address.cast()));
                }
                // SAFETY: this was mapped for this value alone, which ends here.
                let _ = unsafe { munmap(self.address.cast(), self.bytes) };
            }
        }
    }
}

/// Memory of the device.
pub(super) struct Device {
    lab: Lab,
    address: CUdeviceptr,
}

impl Device {
    pub(super) fn new(lab: Lab, bytes: usize) -> Result<Device> {
        Ok(Device { lab, address: lab.allocate(bytes)? })
    }

    /// Copies all of `host` in one direction, which is over when this returns, as far as the driver
    /// promises that.
    #[inline]
    pub(super) fn copy(&self, direction: Direction, host: &Host) -> Result<()> {
        let table = self.lab.table;
        match direction {
            Direction::ToDevice => {
                driver!(table, cuMemcpyHtoD_v2(self.address, host.address.cast(), host.bytes))
            }
            Direction::FromDevice => {
                driver!(table, cuMemcpyDtoH_v2(host.address.cast(), self.address, host.bytes))
            }
        }
    }

    /// Queues such a copy.
    #[inline]
    pub(super) fn queue(&self, direction: Direction, host: &Host, stream: CUstream) -> Result<()> {
        let (table, address, bytes) = (self.lab.table, host.address, host.bytes);
        match direction {
            Direction::ToDevice => {
                driver!(table, cuMemcpyHtoDAsync_v2(self.address, address.cast(), bytes, stream))
            }
            Direction::FromDevice => {
                driver!(table, cuMemcpyDtoHAsync_v2(address.cast(), self.address, bytes, stream))
            }
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // After an error of the device this fails; the process is about to end then.
        let _ = self.lab.free(self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_differ_by_seed_and_by_place() {
        let (mut one, mut other) = (Content::of(1), Content::of(2));
        // The first and last pages of 256 MiB.
        for number in [0, 1, (256 << 20) / PAGE - 1] {
            let page = *one.page(number);
            assert!(
                page[..8] != other.page(number)[..8]
                    && page[8..].iter().zip(&other.page(number)[8..]).all(|(a, b)| a != b)
            );
            assert_ne!(page, *one.page(number + 1));
            assert_eq!(page, *one.page(number));
        }
    }

    #[test]
    fn directions_have_names() {
        for direction in Direction::BOTH {
            assert_eq!(Direction::named(direction.name()), Some(direction));
        }
        assert_eq!(Direction::named("both"), None);
    }
}

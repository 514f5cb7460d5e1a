//! Copies between host and device.

use std::ffi::c_void;
use std::ptr;
use std::time::Duration;

use outboard_abi::CUdeviceptr;

use super::{Measure, Prepared, nothing, repeat};
use crate::lab::{Lab, LabError, Result, driver};
use crate::protocol::Turn;
use crate::results::{Group, Unit};

/// Sizes of copies that are measured as rates, with their names.
const SIZES: [(&str, usize); 5] =
    [("64K", 64 << 10), ("1M", 1 << 20), ("16M", 16 << 20), ("64M", 64 << 20), ("256M", 256 << 20)];

/// The smallest copy is a matter of latency.
const TINY: usize = 64;

pub(super) fn catalogue(quick: bool) -> Vec<Measure> {
    let mut all = Vec::new();
    for (direction, words) in [("h2d", "to the device"), ("d2h", "from the device")] {
        all.push(Measure::new(
            format!("copy.tiny.{direction}"),
            format!("64 B {words}, pageable, synchronous"),
            Unit::Time,
            Group::Copies,
        ));
    }
    for (kind, words) in [("pinned", "pinned, asynchronous, and a wait"), ("pageable", "pageable, synchronous")] {
        for (direction, way) in [("h2d", "to the device"), ("d2h", "from the device")] {
            for (name, bytes) in SIZES.into_iter().filter(|(_, bytes)| !quick || *bytes <= 16 << 20) {
                let size =
                    if bytes >> 20 == 0 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) };
                all.push(Measure::new(
                    format!("copy.{kind}.{direction}.{name}"),
                    format!("{size} {way}, {words}"),
                    Unit::Rate,
                    Group::Copies,
                ));
            }
        }
    }
    all
}

/// Host memory of one kind, touched, with device memory of the same size.
struct Pair {
    lab: Lab,
    host: *mut u8,
    device: CUdeviceptr,
    bytes: usize,
    /// What a vector owns; page-locked memory is the driver's.
    pageable: Option<Vec<u8>>,
}

impl Pair {
    fn new(lab: Lab, bytes: usize, pinned: bool) -> Result<Pair> {
        let device = lab.allocate(bytes)?;
        let mut pair = Pair { lab, host: ptr::null_mut(), device, bytes, pageable: None };
        if pinned {
            let mut address: *mut c_void = ptr::null_mut();
            driver!(lab.table, cuMemHostAlloc(&mut address, bytes, 0))?;
            pair.host = address.cast();
        } else {
            let mut memory = vec![0; bytes];
            pair.host = memory.as_mut_ptr();
            pair.pageable = Some(memory);
        }
        pair.fill(1);
        Ok(pair)
    }

    /// Writes the whole host side.
    fn fill(&mut self, value: u8) {
        // SAFETY: `bytes` bytes belong to this pair, and nothing else works on them between turns.
        unsafe { self.host.write_bytes(value, self.bytes) };
    }

    fn to_device(&self) -> Result<()> {
        let (table, bytes) = (self.lab.table, self.bytes);
        if self.pageable.is_some() {
            driver!(table, cuMemcpyHtoD_v2(self.device, self.host.cast(), bytes))
        } else {
            driver!(table, cuMemcpyHtoDAsync_v2(self.device, self.host.cast(), bytes, self.lab.stream))?;
            self.lab.wait()
        }
    }

    fn to_host(&self) -> Result<()> {
        let (table, bytes) = (self.lab.table, self.bytes);
        if self.pageable.is_some() {
            driver!(table, cuMemcpyDtoH_v2(self.host.cast(), self.device, bytes))
        } else {
            driver!(table, cuMemcpyDtoHAsync_v2(self.host.cast(), self.device, bytes, self.lab.stream))?;
            self.lab.wait()
        }
    }

    /// Whether the bytes really went both ways: a figure of a copy that did not happen is worse than none.
    fn check(&mut self, value: u8) -> Result<()> {
        self.fill(value);
        self.to_device()?;
        self.fill(!value);
        self.to_host()?;
        // SAFETY: the memory is this pair's, written, and no copy is under way.
        let host = unsafe { std::slice::from_raw_parts(self.host, self.bytes) };
        match host.iter().position(|byte| *byte != value) {
            None => Ok(()),
            Some(at) => Err(LabError::Wrong(format!("a copy of {} bytes brought another byte at {at}", self.bytes))),
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // After an error of the device these fail too; the process is about to end then.
        let _ = self.lab.free(self.device);
        if self.pageable.is_none() && !self.host.is_null() {
            let _ = driver!(self.lab.table, cuMemFreeHost(self.host.cast()));
        }
    }
}

pub(super) fn prepare(lab: &Lab, measure: &str, budget: Duration) -> Result<Option<Prepared>> {
    let name = measure.to_owned();
    let parts: Vec<&str> = measure.split('.').collect();
    let (kind, direction, bytes) = match parts[..] {
        [_, "tiny", direction] => ("pageable", direction, TINY),
        [_, kind @ ("pinned" | "pageable"), direction, size] => match SIZES.into_iter().find(|(name, _)| *name == size)
        {
            Some((_, bytes)) => (kind, direction, bytes),
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    let mut pair = Pair::new(*lab, bytes, kind == "pinned")?;
    pair.check(0x5a)?;
    let rate = bytes != TINY;
    let as_rate = move |mut turn: Turn| {
        if rate {
            turn.samples.values_mut().flatten().for_each(|seconds| *seconds = bytes as f64 / *seconds);
        }
        turn
    };
    let lab = *lab;
    // Small copies to the device return once the bytes are taken: they are not to queue up.
    let settle = move || if rate { Ok(()) } else { lab.wait() };
    let prepared: Prepared = match direction {
        "h2d" => Box::new(move || repeat(&name, budget, 1, settle, || pair.to_device()).map(as_rate)),
        "d2h" => Box::new(move || repeat(&name, budget, 1, nothing, || pair.to_host()).map(as_rate)),
        _ => return Ok(None),
    };
    Ok(Some(prepared))
}

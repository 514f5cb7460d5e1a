//! Memory of the device, taken and given back.

use std::ptr;
use std::time::Duration;

use super::measure::Measure;
use super::sampling::{Prepared, nothing, repeat};
use crate::lab::{Lab, Result, driver};
use crate::results::{Group, Unit};

const SMALL: usize = 4 << 10;
const LARGE: usize = 64 << 20;

pub(super) fn catalogue() -> Vec<Measure> {
    let time = |id: &str, title: &str| Measure::new(id, title, Unit::Time, Group::Memory);
    vec![
        time("memory.alloc.4K", "cuMemAlloc and cuMemFree, 4 KiB"),
        time("memory.alloc.64M", "cuMemAlloc and cuMemFree, 64 MiB"),
        time("memory.pool.4K", "cuMemAllocAsync and cuMemFreeAsync, 4 KiB, cost on the caller"),
        time("memory.pool.64M", "cuMemAllocAsync and cuMemFreeAsync, 64 MiB, cost on the caller"),
        time("memory.set", "cuMemsetD8Async of 4 KiB, cost on the caller (200 in a row)"),
        time("memory.pinned.16M", "cuMemHostAlloc and cuMemFreeHost, 16 MiB"),
    ]
}

pub(super) fn prepare(lab: &Lab, measure: &str, budget: Duration) -> Result<Option<Prepared>> {
    let lab = *lab;
    let (table, stream) = (lab.table, lab.stream);
    let name = measure.to_owned();
    let size = if measure.ends_with(".4K") { SMALL } else { LARGE };
    let prepared: Prepared = match measure {
        "memory.alloc.4K" | "memory.alloc.64M" => Box::new(move || {
            repeat(&name, budget, 1, nothing, || {
                let address = lab.allocate(size)?;
                lab.free(address)
            })
        }),
        "memory.pool.4K" | "memory.pool.64M" => Box::new(move || {
            repeat(
                &name,
                budget,
                20,
                || lab.wait(),
                || {
                    let mut address = 0;
                    driver!(table, cuMemAllocAsync(&mut address, size, stream))?;
                    driver!(table, cuMemFreeAsync(address, stream))
                },
            )
        }),
        "memory.set" => {
            let address = lab.allocate(SMALL)?;
            Box::new(move || {
                repeat(
                    &name,
                    budget,
                    200,
                    || lab.wait(),
                    || driver!(table, cuMemsetD8Async(address, 7, SMALL, stream)),
                )
            })
        }
        "memory.pinned.16M" => Box::new(move || {
            repeat(&name, budget, 1, nothing, || {
                let mut address = ptr::null_mut();
                driver!(table, cuMemHostAlloc(&mut address, 16 << 20, 0))?;
                driver!(table, cuMemFreeHost(address))
            })
        }),
        _ => return Ok(None),
    };
    Ok(Some(prepared))
}

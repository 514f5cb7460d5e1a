//! A driver library, tried in a process of its own.

use std::cell::Cell;
use std::ffi::CStr;
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use outboard_abi::{CUdevice_attribute as A, CUresult};
use outboard_driver::nvml::Nvml;
use outboard_driver::{Library, Table, call};
use outboard_supervisor::warm::Bounds;
use outboard_wire::Code;
use outboard_worker::sandbox::{self, Mode, Sandbox};
use serde::{Deserialize, Serialize};

use super::finding::Finding;
use super::{child, machine};

/// How long a driver may take to start. One without its persistence daemon takes seconds for each
/// GPU.
const LONGEST_START: Duration = Duration::from_secs(90);
/// What a waiting worker's context holds of a GPU, about.
const CONTEXT: u64 = 600 << 20;

/// What the process found.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Found {
    /// Why the library cannot be loaded.
    unusable: Option<String>,
    /// What `cuInit` returned.
    init: u32,
    /// `cuDriverGetVersion`.
    version: i32,
    nvml: bool,
    devices: Vec<Device>,
    calls: Option<Calls>,
}

/// What a driver does once system calls are noted that a worker's sandbox would refuse.
#[derive(Debug, Serialize, Deserialize)]
struct Calls {
    /// Their names.
    lacking: Vec<String>,
    /// What some work came to.
    work: Result<(), u32>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Device {
    name: String,
    memory: u64,
    /// With a context there; without one, what went wrong.
    free: Result<u64, u32>,
    /// `CU_DEVICE_ATTRIBUTE_COMPUTE_MODE`.
    mode: i32,
}

/// The child: prints what it found.
pub(super) fn describe(library: &Path) -> String {
    serde_json::to_string(&find(library)).unwrap_or_default() + "\n"
}

fn find(library: &Path) -> Found {
    // SAFETY: the server's administrator chose the file as a CUDA driver library.
    let table = match unsafe { Library::load(library) } {
        Ok(loaded) => loaded.table,
        Err(error) => return Found { unusable: Some(error.to_string()), ..Found::default() },
    };
    let mut found = Found::default();
    if let Err(status) = call!(table, cuInit(0)) {
        found.init = status.0;
        return found;
    }
    // Values that cannot be queried stay empty.
    let _ = call!(table, cuDriverGetVersion(&mut found.version));
    // SAFETY: as for the driver, beside which it lies.
    found.nvml = unsafe { Nvml::load(None, library) }.is_some();
    let mut count = 0;
    if call!(table, cuDeviceGetCount(&mut count)).is_ok() {
        found.devices = (0..count).filter_map(|ordinal| device(&table, ordinal)).collect();
    }
    if found.devices.iter().any(|device| device.free.is_ok()) {
        found.calls = calls(&table);
    }
    found
}

/// Has the driver work while system calls are noted; `None` where the kernel does not tell them.
fn calls(table: &Table) -> Option<Calls> {
    let seen = Arc::new(outboard_supervisor::calls::Calls::new(true));
    let told = Cell::new(false);
    let tell = |listener| {
        told.set(true);
        seen.answer_for(std::process::id(), listener);
        Ok(())
    };
    let sandbox = Sandbox::new(Mode::Strict, Vec::new(), Vec::new());
    sandbox.with_calls(sandbox::Calls::Record).before_the_client(Some(&tell)).ok()?;
    if !told.get() {
        return None;
    }
    let work = work(table).map_err(|status| status.0);
    Some(Calls { lacking: seen.noted(), work })
}

/// Work in the context that is current.
fn work(table: &Table) -> Result<(), CUresult> {
    const BYTES: usize = 1 << 20;
    let (mut memory, mut stream) = (0, ptr::null_mut());
    let mut host = vec![1_u8; BYTES];
    let at = host.as_mut_ptr().cast();
    call!(table, cuStreamCreate(&raw mut stream, 1))?;
    call!(table, cuMemAlloc_v2(&raw mut memory, BYTES))?;
    call!(table, cuMemsetD8Async(memory, 1, BYTES, stream))?;
    call!(table, cuMemcpyHtoDAsync_v2(memory, at, BYTES, stream))?;
    call!(table, cuMemcpyDtoHAsync_v2(at, memory, BYTES, stream))?;
    call!(table, cuStreamSynchronize(stream))?;
    call!(table, cuMemFree_v2(memory))?;
    call!(table, cuStreamDestroy_v2(stream))
}

fn device(table: &Table, ordinal: i32) -> Option<Device> {
    let (mut device, mut name, mut memory, mut mode) = (0, [0; 256], 0, 0);
    call!(table, cuDeviceGet(&mut device, ordinal)).ok()?;
    call!(table, cuDeviceGetName(name.as_mut_ptr(), 255, device)).ok()?;
    call!(table, cuDeviceTotalMem_v2(&mut memory, device)).ok()?;
    let _ =
        call!(table, cuDeviceGetAttribute(&mut mode, A::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device));
    // SAFETY: the driver ends the name within the buffer, whose last byte stays zero.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    let (mut context, mut free, mut total) = (ptr::null_mut(), 0, 0);
    let asked = call!(table, cuDevicePrimaryCtxRetain(&mut context, device))
        .and_then(|()| call!(table, cuCtxSetCurrent(context)))
        .and_then(|()| call!(table, cuMemGetInfo_v2(&mut free, &mut total)));
    Some(Device {
        name,
        memory: memory as u64,
        free: asked.map(|()| free as u64).map_err(|status| status.0),
        mode,
    })
}

/// Tries a library. `warm` are the workers that are going to wait with a context on it.
pub(super) fn check(library: &Path, warm: Bounds) -> Vec<Finding> {
    let mut trial = child::this_program("doctor-trial");
    let ended = match child::run(trial.arg("driver").arg(library), LONGEST_START) {
        Ok(ended) => ended,
        Err(error) => {
            let found = format!("the process that tries the driver cannot be started: {error}");
            return vec![Finding::fail(
                "driver",
                Code::ServerStart,
                found,
                "check `ulimit -u` and the memory left",
            )];
        }
    };
    let problem = ended.problem(LONGEST_START);
    match serde_json::from_str::<Found>(&ended.stdout) {
        Ok(found) if problem.is_none() => tell(library, &found, warm),
        _ => {
            let problem = problem.unwrap_or_else(|| "it said nothing".to_owned());
            let mend = "look at `dmesg` for messages of the GPU's driver (NVRM, Xid), and try `nvidia-smi`";
            vec![Finding::fail(
                "driver",
                Code::DriverUnusable,
                format!("{} does not start: {problem}", library.display()),
                mend,
            )]
        }
    }
}

fn tell(library: &Path, found: &Found, warm: Bounds) -> Vec<Finding> {
    let name = library.display();
    if let Some(reason) = &found.unusable {
        let mend = "install NVIDIA's driver, or name the library with --driver PATH";
        return vec![Finding::fail("driver", Code::DriverUnusable, reason.clone(), mend)];
    }
    if found.init != 0 {
        let found_sentence = format!("{name} does not start: error {}", found.init);
        return vec![Finding::fail(
            "driver",
            Code::DriverUnusable,
            found_sentence,
            init_help(found.init),
        )];
    }
    let version =
        format!("{name} starts, CUDA {}.{}", found.version / 1000, found.version % 1000 / 10);
    let mut findings = vec![Finding::ok("driver", version)];
    if found.devices.is_empty() {
        let mend = "is there a GPU (`lspci | grep -i nvidia`), and may this user open /dev/nvidia*? CUDA_VISIBLE_DEVICES may hide it";
        findings.push(Finding::fail("devices", Code::NoDevice, "the driver finds no device", mend));
    }
    findings.extend(
        found.devices.iter().enumerate().map(|(index, device)| tell_device(index, device, warm)),
    );
    let nvml = "NVML was not found; clients that ask it get what the driver library says: names and memory";
    findings.push(match found.nvml {
        true => Finding::ok("nvml", "NVML was found"),
        false => Finding::ok("nvml", nvml).expect("--nvml PATH names NVIDIA's libnvidia-ml.so.1"),
    });
    findings.extend(found.calls.as_ref().map(tell_calls));
    findings
}

fn tell_calls(calls: &Calls) -> Finding {
    const CHECK: &str = "system calls";
    let mend = "programs may do without them; if they fail, `outboard serve --sandbox-calls deny` refuses fewer, and the log of `record` names them";
    match (calls.lacking.as_slice(), calls.work) {
        ([], Ok(())) => Finding::ok(CHECK, "the driver works with those that the sandbox allows"),
        ([], Err(status)) => {
            let found = format!("the driver fails with error {status} while they are noted");
            Finding::warn(CHECK, found, mend)
        }
        (lacking, _) => {
            let found =
                format!("the sandbox refuses {}, which the driver makes", lacking.join(", "));
            Finding::warn(CHECK, found, mend)
        }
    }
}

fn tell_device(index: usize, device: &Device, warm: Bounds) -> Finding {
    let name = format!("/{index} {}, {}", device.name, machine::size(device.memory));
    let free = match device.free {
        Ok(free) => free,
        Err(status) => {
            let mend = match (device.mode, status) {
                (2, _) => "its compute mode forbids contexts: `nvidia-smi -c DEFAULT`",
                (_, 46 | 999) => {
                    "another process may have it in exclusive mode: `nvidia-smi` lists them"
                }
                (_, 2) => "its memory is full: `nvidia-smi` lists who has it",
                _ => {
                    "`nvidia-smi -q` and `dmesg` (Xid) may say more; resetting the GPU may mend it"
                }
            };
            return Finding::fail(
                "devices",
                Code::NoDevice,
                format!("{name}: no context can be made, error {status}"),
                mend,
            );
        }
    };
    let found = format!("{name}, {} free", machine::size(free));
    // More than the least wait only where there is room for them.
    let least = warm.least;
    let held = CONTEXT * least as u64;
    if device.mode == 3 {
        Finding::warn(
            "devices",
            found,
            "its compute mode is exclusive: one session at a time can use it; `nvidia-smi -c DEFAULT` lets several",
        )
    } else if free < held {
        let mend = format!(
            "{least} waiting workers hold about {} of each device in --warm-devices: lower --warm",
            machine::size(held)
        );
        Finding::warn("devices", found, mend)
    } else {
        Finding::ok("devices", found)
    }
}

/// What to do about an error of `cuInit`.
fn init_help(error: u32) -> &'static str {
    match error {
        100 => {
            "there is no GPU, or it is not visible here: `nvidia-smi`, /dev/nvidia*, CUDA_VISIBLE_DEVICES, a container's --device"
        }
        101 | 304 => {
            "the kernel module is not loaded, or /dev/nvidia* cannot be opened: `modprobe nvidia`, and check their rights"
        }
        802 => {
            "the fabric manager does not run, or is not ready: `systemctl status nvidia-fabricmanager`"
        }
        803 => {
            "kernel module and library are of different releases: restart the machine after an update, or reload the module"
        }
        804 => {
            "this GPU does not support the forward compatibility package: use the driver's own library"
        }
        _ => "`nvidia-smi` and `dmesg` (NVRM, Xid) may say more",
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn levels(found: &Found) -> Vec<Level> {
        tell(Path::new("libcuda.so.1"), found, Bounds::fixed(1))
            .iter()
            .map(|finding| finding.level)
            .collect()
    }

    #[test]
    fn each_trouble_is_told() {
        let device = |free, mode| Device { name: "GPU".into(), memory: 8 << 30, free, mode };
        let with = |device| Found {
            version: 13000,
            nvml: true,
            devices: vec![device],
            ..Found::default()
        };
        assert_eq!(levels(&with(device(Ok(7 << 30), 0))), [Level::Ok; 3]);
        assert_eq!(
            levels(&with(device(Ok(1 << 20), 0)))[1],
            Level::Warn,
            "no room for a waiting worker"
        );
        assert_eq!(levels(&with(device(Ok(7 << 30), 3)))[1], Level::Warn, "exclusive");
        assert_eq!(levels(&with(device(Err(46), 0)))[1], Level::Fail);
        assert_eq!(levels(&Found { init: 803, ..Found::default() }), [Level::Fail]);
        assert_eq!(
            levels(&Found { nvml: true, ..Found::default() }),
            [Level::Ok, Level::Fail, Level::Ok]
        );
    }

    #[test]
    fn a_library_that_is_not_there_is_told() {
        let found = find(Path::new("/nonexistent/libcuda.so.1"));
        assert!(found.unusable.is_some_and(|reason| reason.contains("/nonexistent/libcuda.so.1")));
    }
}

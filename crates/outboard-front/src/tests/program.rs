//! What a test of the front begins with: a process of its own, over a recorder that knows two
//! devices and one kernel.

use core::ffi::c_void;
use std::sync::Once;
use std::sync::mpsc::{Receiver, Sender, channel};

use outboard_abi::{
    CUcontext, CUdevice_attribute as A, CUdeviceptr, CUevent, CUfunction,
    CUfunction_attribute as F, CUmodule, CUresult, CUstream,
};
use outboard_wire::platform::{Device, KernelInfo, Platform};

use super::*;
use crate::backend::{DeviceId, Recorder, Result};
use crate::process::Process;

/// A process that the test plays the program of. What a thread has current belongs to one program:
/// a second one needs a thread of its own.
#[derive(Clone, Copy)]
pub(super) struct Program {
    pub(super) process: &'static Process<Recorder>,
    pub(super) recorder: &'static Recorder,
}

/// An image that the recorder takes, as it takes any.
pub(super) const IMAGE: *const c_void = c".version 9.0".as_ptr().cast();
/// Bytes of the one parameter of each kernel.
pub(super) const PARAMETER_BYTES: u32 = 8;

impl Program {
    /// One that has not called `cuInit`.
    pub(super) fn new() -> Program {
        see_all_devices();
        let recorder = Recorder::leak();
        prepare(recorder);
        Program { process: Box::leak(Box::new(Process::apart(recorder))), recorder }
    }

    /// One that has called `cuInit`.
    pub(super) fn ready() -> Program {
        let program = Program::new();
        call!(program, cuInit, 0).expect("the recorder has devices");
        program
    }

    /// One whose thread has the first device's primary context current.
    pub(super) fn current() -> Program {
        let program = Program::ready();
        program.make_current(0);
        program
    }

    /// Retains the primary context of a device, and makes it current.
    pub(super) fn make_current(self, device: i32) -> CUcontext {
        let context =
            ask!(self, cuDevicePrimaryCtxRetain, device).expect("the recorder opens contexts");
        call!(self, cuCtxSetCurrent, context).expect("it was retained");
        context
    }

    pub(super) fn stream(self) -> CUstream {
        ask!(self, cuStreamCreate, 0).expect("a context is current")
    }

    pub(super) fn event(self) -> CUevent {
        ask!(self, cuEventCreate, 0).expect("a context is current")
    }

    pub(super) fn memory(self, bytes: usize) -> CUdeviceptr {
        ask!(self, cuMemAlloc_v2, bytes).expect("a context is current")
    }

    pub(super) fn module(self) -> CUmodule {
        ask!(self, cuModuleLoadData, IMAGE).expect("a context is current")
    }

    /// A kernel of a new module.
    pub(super) fn function(self) -> CUfunction {
        ask!(self, cuModuleGetFunction, self.module(), c"kernel".as_ptr())
            .expect("a context is current")
    }

    /// Launches a block of 32 threads, with 7 as the parameter.
    pub(super) fn launch(self, function: CUfunction, stream: CUstream) -> Result<()> {
        let mut parameter = 7_u64;
        let mut parameters = [(&raw mut parameter).cast::<c_void>()];
        let none = core::ptr::null_mut();
        call!(
            self,
            cuLaunchKernel,
            function,
            1,
            1,
            1,
            32,
            1,
            1,
            0,
            stream,
            parameters.as_mut_ptr(),
            none
        )
    }

    /// What the back end is asked from now on, by `work`.
    pub(super) fn asked_by(self, work: impl FnOnce()) -> Vec<String> {
        let before = self.recorder.calls().len();
        work();
        self.recorder.calls()[before..].iter().map(ToString::to_string).collect()
    }

    /// As [`Program::asked_by`], the methods alone.
    pub(super) fn methods_of(self, work: impl FnOnce()) -> Vec<&'static str> {
        let before = self.recorder.calls().len();
        work();
        self.recorder.calls()[before..].iter().map(|call| call.method).collect()
    }

    /// The next call of a method fails.
    pub(super) fn fail_next(self, method: &str, error: CUresult) {
        let so_far = self.recorder.calls().iter().filter(|call| call.method == method).count();
        self.recorder.fail(method, so_far + 1, error);
    }
}

/// Has a recorder know two devices and one kernel.
pub(super) fn prepare(recorder: &Recorder) {
    recorder.answer_with("platform", platform());
    recorder.answer_with("module_function", kernel());
    recorder.answer_with("occupancy", 4_i32);
}

/// One of two threads that wait for each other.
pub(super) struct Side(Sender<()>, Receiver<()>);

/// Both.
pub(super) fn two_sides() -> (Side, Side) {
    let ((to_first, of_first), (to_second, of_second)) = (channel(), channel());
    (Side(to_second, of_first), Side(to_first, of_second))
}

impl Side {
    /// Waits until the other one is here too. If that has failed, so does this.
    pub(super) fn meet(&self) {
        let _ = self.0.send(());
        self.1.recv().expect("the other thread has failed");
    }
}

/// What is overwritten: an answer that has not come yet.
pub(super) fn nothing<T>() -> T {
    // SAFETY: it is used for numbers, addresses and handles, for all of which zeroes will do.
    unsafe { core::mem::zeroed() }
}

/// Whoever runs the tests may have hidden devices from programs.
fn see_all_devices() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the front and the tests read the environment by the standard library alone, which
        // takes a lock for it.
        unsafe {
            std::env::remove_var("CUDA_VISIBLE_DEVICES");
            std::env::remove_var("CUDA_DEVICE_ORDER");
        }
    });
}

fn platform() -> Platform {
    let device = |ordinal: u32| {
        let mut attributes = vec![
            (A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK.0, 1024),
            (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X.0, 1024),
            (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y.0, 1024),
            (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z.0, 64),
            (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X.0, i32::MAX),
            (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y.0, 65535),
            (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z.0, 65535),
            (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK.0, 48 << 10),
            (A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK.0, 65536),
            (A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT.0, 100 + ordinal as i32),
            (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR.0, 9),
            (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR.0, 0),
            (A::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY.0, 1),
        ];
        attributes.sort_unstable();
        Device {
            id: DeviceId::new(ordinal),
            name: format!("device {ordinal}"),
            uuid: [ordinal as u8 + 1; 16],
            total_memory: 80 << 30,
            attributes,
            stream_priorities: (0, -5),
            peers: vec![DeviceId::new(1 - ordinal)],
        }
    };
    Platform {
        driver_version: 13000,
        driver_name: "recorder".into(),
        devices: vec![device(0), device(1)],
        lacks: Vec::new(),
    }
}

fn kernel() -> KernelInfo {
    let mut attributes = vec![0; F::CU_FUNC_ATTRIBUTE_MAX.0 as usize];
    attributes[F::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK.0 as usize] = 1024;
    attributes[F::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.0 as usize] = 48 << 10;
    attributes[F::CU_FUNC_ATTRIBUTE_NUM_REGS.0 as usize] = 32;
    KernelInfo { attributes, params: vec![(0, PARAMETER_BYTES)] }
}

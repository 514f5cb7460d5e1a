//! A small harness: modules from text, typed buffers in device memory, launches.
#![allow(dead_code, unreachable_pub, clippy::needless_pass_by_value)]

pub mod table;

use outboard_simt::{Engine, EngineConfig, Fault, Kernel, Launch, Program};
use std::sync::Arc;
use std::time::Duration;

/// The head of every module in the tests.
pub const HEADER: &str = ".version 9.0\n.target sm_90\n.address_size 64\n";

/// An engine with a small memory and some threads.
pub fn engine() -> Arc<Engine> {
    engine_with(EngineConfig::COMPILE_TIME)
}

/// The same, with the time that compiling a program may take.
pub fn engine_with(compile_time: Duration) -> Arc<Engine> {
    Engine::new(&EngineConfig {
        threads: Some(2),
        arena_bytes: 256 << 20,
        compile_time,
        ..EngineConfig::default()
    })
    .expect("an engine")
}

/// An engine and one program on it.
pub struct Rig {
    pub engine: Arc<Engine>,
    pub program: Arc<Program>,
}

/// Plain values that may lie in device memory.
pub trait Pod: Copy + Default + 'static {}
impl<T: Copy + Default + 'static> Pod for T {}

/// An array in device memory.
pub struct Buffer<T> {
    engine: Arc<Engine>,
    pub addr: u64,
    len: usize,
    marker: std::marker::PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    pub fn read(&self) -> Vec<T> {
        let mut values = vec![T::default(); self.len];
        // SAFETY: the allocation holds `len` values, of a type for which every bit pattern that
        // kernels write is valid.
        unsafe {
            std::ptr::copy_nonoverlapping(self.addr as *const T, values.as_mut_ptr(), self.len)
        };
        values
    }

    pub fn write(&self, values: &[T]) {
        assert!(values.len() <= self.len);
        // SAFETY: the allocation holds at least as many values.
        unsafe {
            std::ptr::copy_nonoverlapping(values.as_ptr(), self.addr as *mut T, values.len())
        };
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        self.engine.memory().free(self.addr);
    }
}

/// Arguments of a kernel, laid out with natural alignment.
#[derive(Default)]
pub struct Args(pub Vec<u8>);

impl Args {
    pub fn push<T: Pod>(mut self, value: T) -> Self {
        let size = size_of::<T>();
        self.0.resize(self.0.len().next_multiple_of(align_of::<T>()), 0);
        let at = self.0.len();
        self.0.resize(at + size, 0);
        // SAFETY: the buffer was just made that long.
        unsafe { (self.0.as_mut_ptr().add(at) as *mut T).write_unaligned(value) };
        self
    }
}

impl Rig {
    /// Compiles `body` behind the usual header.
    pub fn new(body: &str) -> Rig {
        Rig::on(&engine(), body)
    }

    pub fn on(engine: &Arc<Engine>, body: &str) -> Rig {
        let text = format!("{HEADER}{body}");
        let module = match outboard_ptx::parse(&text) {
            Ok(module) => module,
            Err(error) => panic!("{error}\n{text}"),
        };
        let program = match engine.load(&[&module]) {
            Ok(program) => program,
            Err(error) => panic!("{error}\n{text}"),
        };
        Rig { engine: engine.clone(), program }
    }

    pub fn kernel(&self, name: &str) -> Arc<Kernel> {
        self.program.kernel(name).expect("the kernel")
    }

    pub fn buffer<T: Pod>(&self, values: &[T]) -> Buffer<T> {
        let bytes = size_of_val(values).max(1) as u64;
        let addr = self.engine.memory().alloc(bytes, 1).expect("device memory");
        let buffer = Buffer {
            engine: self.engine.clone(),
            addr,
            len: values.len(),
            marker: std::marker::PhantomData,
        };
        buffer.write(values);
        buffer
    }

    pub fn try_launch(&self, name: &str, grid: u32, block: u32, args: Args) -> Result<(), Fault> {
        self.engine.launch(&self.kernel(name), &Launch::new([grid, 1, 1], [block, 1, 1], &args.0))
    }

    pub fn launch(&self, name: &str, grid: u32, block: u32, args: Args) {
        if let Err(fault) = self.try_launch(name, grid, block, args) {
            panic!("{fault}");
        }
    }
}

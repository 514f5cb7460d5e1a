//! A context of its own for each test, and kernels for it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use outboard_abi::CUresult;
use outboard_cpu::Cpu;
use outboard_front::backend::{
    Backend, ContextId, CopyMode, DeviceId, DevicePtr, Image, JitLog, JitOptions, Launch, ObjectId,
    Result, StreamId,
};
use outboard_wire::platform::KernelInfo;

static CONTEXTS: AtomicU32 = AtomicU32::new(1);
static OBJECTS: AtomicU64 = AtomicU64::new(1);

/// A context of one test.
pub(crate) struct Context {
    pub(crate) cpu: &'static Cpu,
    pub(crate) id: ContextId,
}

pub(crate) struct Kernel {
    pub(crate) id: ObjectId,
    pub(crate) info: KernelInfo,
}

/// A name that nothing else has.
pub(crate) fn fresh() -> ObjectId {
    ObjectId(OBJECTS.fetch_add(1, Ordering::Relaxed))
}

impl Context {
    pub(crate) fn new() -> Context {
        Context::on(0)
    }

    pub(crate) fn on(device: u32) -> Context {
        let id = ContextId(CONTEXTS.fetch_add(1, Ordering::Relaxed));
        let cpu = Cpu::get();
        cpu.platform().unwrap();
        cpu.context_open(id, DeviceId::new(device), 0, false).unwrap();
        Context { cpu, id }
    }

    pub(crate) fn alloc(&self, bytes: u64) -> u64 {
        self.cpu.memory_alloc(self.id, bytes).unwrap().0
    }

    /// Memory that holds a zero.
    pub(crate) fn word(&self) -> u64 {
        let word = self.alloc(4);
        self.write(word, &[0], StreamId::LEGACY);
        word
    }

    /// A synchronous copy to the device.
    pub(crate) fn write(&self, address: u64, words: &[u32], stream: StreamId) {
        self.try_write(address, words, stream).unwrap();
    }

    pub(crate) fn try_write(&self, address: u64, words: &[u32], stream: StreamId) -> Result<()> {
        let (source, bytes) = (words.as_ptr().cast(), size_of_val(words) as u64);
        // SAFETY: the slice outlives a synchronous copy.
        unsafe {
            self.cpu.copy_to_device(
                self.id,
                DevicePtr(address),
                source,
                bytes,
                stream,
                CopyMode::Synchronous,
            )
        }
    }

    /// A synchronous copy to the host.
    pub(crate) fn read(&self, address: u64, count: usize, stream: StreamId) -> Vec<u32> {
        self.try_read(address, count, stream).unwrap()
    }

    pub(crate) fn try_read(
        &self,
        address: u64,
        count: usize,
        stream: StreamId,
    ) -> Result<Vec<u32>> {
        let mut words = vec![0; count];
        let (target, bytes) = (words.as_mut_ptr().cast(), size_of_val(&words[..]) as u64);
        // SAFETY: the vector outlives a synchronous copy.
        unsafe {
            self.cpu.copy_to_host(
                self.id,
                target,
                DevicePtr(address),
                bytes,
                stream,
                CopyMode::Synchronous,
            )
        }?;
        Ok(words)
    }

    pub(crate) fn load(&self, ptx: &str) -> std::result::Result<ObjectId, (CUresult, String)> {
        self.load_parts(&[ptx.as_bytes()])
    }

    pub(crate) fn load_parts(
        &self,
        parts: &[&[u8]],
    ) -> std::result::Result<ObjectId, (CUresult, String)> {
        let (id, mut log) = (fresh(), JitLog::default());
        match self.cpu.module_load(
            self.id,
            id,
            Image { parts, options: &JitOptions::default(), sm: 90 },
            &mut log,
        ) {
            Ok(()) => Ok(id),
            Err(error) => Err((error, log.error)),
        }
    }

    pub(crate) fn function(&self, module: ObjectId, name: &str) -> Kernel {
        let id = fresh();
        let info = self.cpu.module_function(self.id, module, name, id).unwrap();
        Kernel { id, info }
    }

    /// The kernel `name` of [`KERNELS`].
    pub(crate) fn kernel(&self, name: &str) -> Kernel {
        let module = self.load(KERNELS).unwrap();
        self.function(module, name)
    }

    /// Launches one block.
    pub(crate) fn launch(
        &self,
        kernel: &Kernel,
        threads: u32,
        params: &[u64],
        stream: StreamId,
    ) -> Result<()> {
        self.launch_with(kernel, threads, params, stream, &[])
    }

    pub(crate) fn launch_with(
        &self,
        kernel: &Kernel,
        threads: u32,
        params: &[u64],
        stream: StreamId,
        attributes: &[(u32, [u8; 64])],
    ) -> Result<()> {
        let params: Vec<u8> = params.iter().flat_map(|param| param.to_ne_bytes()).collect();
        let launch = Launch {
            function: kernel.id,
            grid: [1; 3],
            block: [threads, 1, 1],
            shared: 0,
            params: &params,
            cooperative: false,
            attributes,
        };
        self.cpu.launch(self.id, &launch, stream)
    }

    pub(crate) fn stream(&self, flags: u32) -> StreamId {
        let id = fresh();
        self.cpu.stream_create(self.id, id, flags, 0).unwrap();
        StreamId::created(id)
    }

    pub(crate) fn event(&self, flags: u32) -> ObjectId {
        let id = fresh();
        self.cpu.event_create(self.id, id, flags).unwrap();
        id
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        self.cpu.context_synchronize(self.id)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.cpu.context_close(self.id).unwrap();
    }
}

/// Kernels for tests; each takes 64-bit parameters.
pub(crate) const KERNELS: &str = "
.version 8.3
.target sm_80
.address_size 64

// Each thread adds `amount` to the word at `target`.
.visible .entry add(.param .u64 target, .param .u64 amount) {
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [target];
    ld.param.u32 %r1, [amount];
    atom.global.add.u32 %r2, [%rd1], %r1;
    ret;
}

// Multiplies the word at `target` by 3 and adds `amount`: the order of such steps shows in the
// result.
.visible .entry step(.param .u64 target, .param .u64 amount) {
    .reg .b64 %rd<3>;
    .reg .b32 %r<4>;
    ld.param.u64 %rd1, [target];
    ld.param.u32 %r1, [amount];
    ld.global.u32 %r2, [%rd1];
    mad.lo.u32 %r3, %r2, 3, %r1;
    st.global.u32 [%rd1], %r3;
    ret;
}

// Waits until the word at `gate` is not zero, then stores 1 to `done`.
.visible .entry wait(.param .u64 gate, .param .u64 done) {
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    .reg .pred %p;
    ld.param.u64 %rd1, [gate];
    ld.param.u64 %rd2, [done];
again:
    ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.u32 %p, %r1, 0;
    @%p bra again;
    st.volatile.global.u32 [%rd2], 1;
    ret;
}

// Stores to an address.
.visible .entry poke(.param .u64 target) {
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [target];
    st.global.u32 [%rd1], 77;
    ret;
}

.visible .entry stop() {
    trap;
    ret;
}
";

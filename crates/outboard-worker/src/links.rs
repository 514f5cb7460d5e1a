//! Links in progress: each has its own thread, since the driver's linker keeps its state by thread.

use core::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use outboard_abi::{CUlinkState, CUresult};
use outboard_driver::{Table, call};
use outboard_wire::jit::{JitLog, JitOptions};

use super::contexts::{Context, current};
use super::jit::{self, Options};
use super::part::Part;

/// Bytes of what was linked that travel in one answer.
const PIECE: usize = 1 << 20;
/// As the main thread of a program has.
const STACK: usize = 8 << 20;

/// The next task of a link's thread.
type Job = Box<dyn FnOnce(&mut State) + Send>;

/// A link and its thread, which ends with it.
pub(crate) struct Link {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    failed: Arc<AtomicBool>,
}

impl Link {
    /// A thread with nothing to link yet.
    pub(crate) fn start(table: &'static Table, context: Context) -> Result<Link, CUresult> {
        let (jobs, received) = channel();
        let failed = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&failed);
        let thread = std::thread::Builder::new().name("link".into()).stack_size(STACK);
        let thread = thread.spawn(move || {
            work(State { table, link: None, output: None, failed: of_thread }, context, &received);
        });
        let thread = thread.map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        Ok(Link { jobs: Some(jobs), thread: Some(thread), failed })
    }

    /// It could not be created: its client will never name it.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Does a job behind those before it.
    pub(crate) fn run(&self, job: impl FnOnce(&mut State) + Send + 'static) {
        if let Some(jobs) = &self.jobs {
            // A thread that is gone drops the job, and with it the answer, which then is an error.
            let _ = jobs.send(Box::new(job));
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(mut state: State, context: Context, jobs: &Receiver<Job>) {
    if call!(state.table, cuCtxSetCurrent(current(&context))).is_ok() {
        while let Ok(job) = jobs.recv() {
            job(&mut state);
        }
    }
}

/// What the thread of a link has.
pub(crate) struct State {
    table: &'static Table,
    /// The driver writes to the buffers until the link ends.
    link: Option<(CUlinkState, Options)>,
    output: Option<Vec<u8>>,
    failed: Arc<AtomicBool>,
}

impl State {
    fn state(&self) -> Result<CUlinkState, CUresult> {
        self.link.as_ref().map(|(state, _)| *state).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    pub(crate) fn create(&mut self, options: &JitOptions) -> Result<(), CUresult> {
        self.try_create(options).inspect_err(|_| self.failed.store(true, Ordering::Release))
    }

    fn try_create(&mut self, options: &JitOptions) -> Result<(), CUresult> {
        let mut options = Options::with_logs(options)?;
        let mut state: CUlinkState = core::ptr::null_mut();
        call!(
            self.table,
            cuLinkCreate_v2(options.count(), options.keys(), options.values(), &raw mut state)
        )?;
        self.link = Some((state, options));
        Ok(())
    }

    pub(crate) fn add(
        &mut self,
        kind: u32,
        data: &Part,
        name: &str,
        options: &JitOptions,
    ) -> Result<(), CUresult> {
        let (mut options, name, state) = (Options::new(options)?, jit::name(name)?, self.state()?);
        call!(
            self.table,
            cuLinkAddData_v2(
                state,
                outboard_abi::CUjitInputType_enum(kind),
                data.pointer().cast_mut(),
                data.len(),
                name.as_ptr(),
                options.count(),
                options.keys(),
                options.values(),
            )
        )
    }

    /// Links; the bytes of the image.
    pub(crate) fn complete(&mut self) -> Result<u64, CUresult> {
        let (mut image, mut bytes): (*mut c_void, usize) = (core::ptr::null_mut(), 0);
        call!(self.table, cuLinkComplete(self.state()?, &raw mut image, &raw mut bytes))?;
        // SAFETY: the driver's image of that size, which lives as long as the link.
        let image = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), bytes) };
        self.output = Some(image.to_vec());
        Ok(bytes as u64)
    }

    /// A piece of the image.
    pub(crate) fn output(&self, offset: u64) -> Result<&[u8], CUresult> {
        let image = self.output.as_deref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let rest = usize::try_from(offset).ok().and_then(|offset| image.get(offset..));
        let rest = rest.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        Ok(&rest[..rest.len().min(PIECE)])
    }

    pub(crate) fn log(&self) -> JitLog {
        self.link.as_ref().map(|(_, options)| options.log()).unwrap_or_default()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some((state, _)) = &self.link {
            let _ = call!(self.table, cuLinkDestroy(*state));
        }
    }
}

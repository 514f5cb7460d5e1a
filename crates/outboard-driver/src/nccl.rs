//! A loaded NCCL library, as a table of functions.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;

use outboard_abi::CUstream;
use outboard_wire::collectives::UniqueId;

/// What our own client library exports and NVIDIA's does not: a server must not ask itself.
const OURS: &CStr = c"outboard_nccl";

/// `ncclUniqueId`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Id(pub UniqueId);

/// `ncclComm_t`.
pub type Comm = *mut c_void;

/// `ncclSuccess`.
pub const SUCCESS: u32 = 0;
/// `ncclInvalidUsage`: what a library does not have.
const INVALID_USAGE: u32 = 5;

/// Defines the table. A function may be one that older releases do not have.
macro_rules! table {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        /// The functions of a library. Those return `ncclResult_t`.
        #[allow(non_snake_case)]
        pub struct Nccl {
            /// It is never unloaded.
            _library: libloading::Library,
            release: u32,
            get_error_string: unsafe extern "C" fn(u32) -> *const c_char,
            get_last_error: Option<unsafe extern "C" fn(Comm) -> *const c_char>,
            $($name: Option<unsafe extern "C" fn($($type),*) -> u32>,)*
        }

        impl Nccl {
            fn table(library: libloading::Library) -> Result<Nccl, libloading::Error> {
                macro_rules! find {
                    ($symbol:expr) => {
                        // SAFETY: a function of this name has this type in every release.
                        unsafe { library.get(concat!($symbol, "\0").as_bytes()).map(|found| *found) }
                    };
                }
                Ok(Nccl {
                    release: 0,
                    get_error_string: find!("ncclGetErrorString")?,
                    get_last_error: find!("ncclGetLastError").ok(),
                    $($name: find!(stringify!($name)).ok(),)*
                    _library: library,
                })
            }

            /// Whether the release does not have a function.
            pub fn lacks(&self, function: &str) -> bool {
                match function {
                    $(stringify!($name) => self.$name.is_none(),)*
                    _ => true,
                }
            }

            $(
                #[doc = concat!("`", stringify!($name), "`, or `ncclInvalidUsage` if the release does not have it.")]
                ///
                /// # Safety
                /// The contract of the C function.
                #[allow(non_snake_case, clippy::too_many_arguments)]
                pub unsafe fn $name(&self, $($argument: $type),*) -> u32 {
                    // SAFETY: by the contract above.
                    self.$name.map_or(INVALID_USAGE, |function| unsafe { function($($argument),*) })
                }
            )*
        }
    };
}

type In = *const c_void;
type Out = *mut c_void;

table! {
    ncclGetVersion(release: *mut c_int);
    ncclGetUniqueId(id: *mut Id);
    ncclCommInitRankConfig(comm: *mut Comm, ranks: c_int, id: Id, rank: c_int, config: Out);
    ncclCommInitRankScalable(comm: *mut Comm, ranks: c_int, rank: c_int, count: c_int, ids: *mut Id, config: Out);
    ncclCommSplit(comm: Comm, color: c_int, key: c_int, made: *mut Comm, config: Out);
    ncclCommShrink(comm: Comm, excluded: *mut c_int, count: c_int, made: *mut Comm, config: Out, flags: c_int);
    ncclCommFinalize(comm: Comm);
    ncclCommDestroy(comm: Comm);
    ncclCommAbort(comm: Comm);
    ncclCommGetAsyncError(comm: Comm, error: *mut u32);
    ncclCommCount(comm: Comm, count: *mut c_int);
    ncclCommUserRank(comm: Comm, rank: *mut c_int);
    ncclCommRegister(comm: Comm, buffer: Out, bytes: usize, handle: *mut Out);
    ncclCommDeregister(comm: Comm, handle: Out);
    ncclCommWindowRegister(comm: Comm, buffer: Out, bytes: usize, window: *mut Out, flags: c_int);
    ncclCommWindowDeregister(comm: Comm, window: Out);
    ncclRedOpCreatePreMulSum(op: *mut u32, scalar: Out, datatype: u32, residence: u32, comm: Comm);
    ncclRedOpDestroy(op: u32, comm: Comm);
    ncclAllReduce(send: In, recv: Out, count: usize, datatype: u32, op: u32, comm: Comm, stream: CUstream);
    ncclBroadcast(send: In, recv: Out, count: usize, datatype: u32, root: c_int, comm: Comm, stream: CUstream);
    ncclReduce(send: In, recv: Out, count: usize, datatype: u32, op: u32, root: c_int, comm: Comm, stream: CUstream);
    ncclAllGather(send: In, recv: Out, count: usize, datatype: u32, comm: Comm, stream: CUstream);
    ncclReduceScatter(send: In, recv: Out, count: usize, datatype: u32, op: u32, comm: Comm, stream: CUstream);
    ncclAlltoAll(send: In, recv: Out, count: usize, datatype: u32, comm: Comm, stream: CUstream);
    ncclGather(send: In, recv: Out, count: usize, datatype: u32, root: c_int, comm: Comm, stream: CUstream);
    ncclScatter(send: In, recv: Out, count: usize, datatype: u32, root: c_int, comm: Comm, stream: CUstream);
    ncclSend(send: In, count: usize, datatype: u32, peer: c_int, comm: Comm, stream: CUstream);
    ncclRecv(recv: Out, count: usize, datatype: u32, peer: c_int, comm: Comm, stream: CUstream);
    ncclGroupStart();
    ncclGroupEnd();
}

impl Nccl {
    /// Loads a library.
    ///
    /// # Safety
    /// The file is NCCL, whose initialisers this runs.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub unsafe fn load(path: &Path) -> Result<Nccl, String> {
        let wrong = |what: &str| format!("{} {what}", path.display());
        // SAFETY: by the contract above.
        let library = unsafe { libloading::Library::new(path) }
            .map_err(|error| wrong(&format!("cannot be loaded: {error}")))?;
        // SAFETY: only looked for.
        if unsafe { library.get::<*const c_void>(OURS.to_bytes_with_nul()) }.is_ok() {
            return Err(wrong("is Outboard's client library, not NCCL"));
        }
        let mut nccl = Nccl::table(library).map_err(|_| wrong("is not NCCL"))?;
        let mut release = 0;
        // SAFETY: a place for the release.
        let status = unsafe { nccl.ncclGetVersion(&raw mut release) };
        if status != SUCCESS || nccl.ncclCommInitRankConfig.is_none() {
            return Err(wrong("is no NCCL of 2.14 or later"));
        }
        nccl.release = release as u32;
        Ok(nccl)
    }

    /// Which release it is, as `ncclGetVersion` says it.
    pub fn release(&self) -> u32 {
        self.release
    }

    /// What the library says of an error, of this thread's last call.
    pub fn sentence(&self, result: u32) -> String {
        // SAFETY: they take any number, and null; texts are the library's own.
        let (error, last) = unsafe {
            let text = |text: *const c_char| {
                (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            };
            let last = self.get_last_error.and_then(|last| text(last(core::ptr::null_mut())));
            (text((self.get_error_string)(result)).unwrap_or_default(), last)
        };
        match last.as_deref().map(str::trim).filter(|last| !last.is_empty()) {
            Some(last) => format!("{error}: {last}"),
            None => error,
        }
    }
}

//! The program's own MPI.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

/// A communicator, datatype or operation: what is in the register, of which an MPI whose handles
/// are `int` reads the lower half.
pub(crate) type Handle = usize;
pub(crate) type Status = *mut c_void;
pub(crate) type Requests = *mut c_void;

pub(crate) const SUCCESS: c_int = 0;

/// Looks a function of the program's MPI up once.
macro_rules! real {
    ($name:literal, fn($($argument:ty),* $(,)?)) => {{
        static FOUND: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        let found = *FOUND.get_or_init(|| $crate::mpi::look_up($name));
        type Function = unsafe extern "C" fn($($argument),*) -> std::ffi::c_int;
        // SAFETY: that is the function's type in MPI's standard, with handles as registers.
        #[allow(unused_unsafe, reason = "some callers are in an unsafe block already")]
        let function = unsafe { std::mem::transmute::<usize, Function>(found) };
        function
    }};
}
pub(crate) use real;

/// The names of MPI's library: a program that loads it itself, as Python does, need not let others
/// see what is in it.
const LIBRARIES: [&CStr; 4] = [c"libmpi.so.40", c"libmpi.so.12", c"libmpich.so.12", c"libmpi.so"];

/// The address of a symbol of the program's MPI, if there is one.
fn symbol(name: &CStr) -> Option<usize> {
    let within = |library: *mut c_void| {
        // SAFETY: the name is a C string, and the library is one that is loaded, or all of them.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        (!found.is_null()).then_some(found as usize)
    };
    let loaded = |library: &CStr| {
        // SAFETY: it loads nothing. It is not closed again, as what is found in it is kept.
        let found = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        (!found.is_null()).then_some(found)
    };
    within(libc::RTLD_DEFAULT).or_else(|| within(LIBRARIES.iter().find_map(|name| loaded(name))?))
}

/// The address of a symbol that the program may have loaded.
pub(crate) fn optional_symbol(name: &CStr) -> Option<usize> {
    symbol(name)
}

pub(crate) fn look_up(name: &CStr) -> usize {
    symbol(name).unwrap_or_else(|| {
        outboard_threads::say(format_args!(
            "this program's MPI has no {}, which liboutboard-mpi.so needs: start it without `outboard run --mpi`",
            name.to_string_lossy()
        ));
        std::process::abort()
    })
}

/// How the program's MPI writes what other MPIs write otherwise.
pub(crate) struct Form {
    /// Bytes of a request.
    request: usize,
    /// Bytes of a status.
    pub(crate) status: usize,
    /// The address that stands for "the other buffer".
    in_place: usize,
    pub(crate) world: Handle,
    /// The type of bytes.
    byte: Handle,
    /// What a call returns whose buffer is too small for a message.
    truncated: c_int,
    pub(crate) any_source: c_int,
    pub(crate) any_tag: c_int,
    /// Where in a status source and tag stand, in ints.
    envelope: [usize; 2],
}

pub(crate) fn form() -> &'static Form {
    static FORM: OnceLock<Form> = OnceLock::new();
    FORM.get_or_init(|| match symbol(c"ompi_mpi_comm_world") {
        Some(world) => Form {
            request: size_of::<usize>(),
            status: 24,
            in_place: 1,
            world,
            byte: look_up(c"ompi_mpi_byte"),
            truncated: 15,
            any_source: -1,
            any_tag: -1,
            envelope: [0, 1],
        },
        None => Form {
            request: size_of::<c_int>(),
            status: 20,
            in_place: usize::MAX,
            world: 0x4400_0000,
            byte: 0x4c00_010d,
            truncated: 14,
            any_source: -2,
            any_tag: -1,
            envelope: [2, 3],
        },
    })
}

impl Form {
    pub(crate) fn byte(&self) -> Handle {
        self.byte
    }

    /// Whether handles are numbers, which are the same everywhere.
    pub(crate) fn has_numbers(&self) -> bool {
        self.request == size_of::<c_int>()
    }

    /// A request's number, as [`Form::requests`] has it.
    pub(crate) fn number(&self, request: Handle) -> u64 {
        if self.has_numbers() { u64::from(request as u32) } else { request as u64 }
    }

    /// Whether two registers hold the same handle.
    pub(crate) fn same(&self, one: Handle, other: Handle) -> bool {
        if self.has_numbers() {
            return one as u32 == other as u32;
        }
        one == other
    }

    /// The requests of an array. Nothing is done with them but to compare them.
    ///
    /// # Safety
    /// There are so many in the array.
    pub(crate) unsafe fn requests(&self, array: Requests, count: c_int) -> Vec<u64> {
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the caller's program has an array of its MPI's requests there.
        let read = |place: usize| unsafe {
            match self.request {
                4 => u64::from(array.cast::<u32>().add(place).read_unaligned()),
                _ => array.cast::<u64>().add(place).read_unaligned(),
            }
        };
        (0..count).map(read).collect()
    }

    /// A handle of the program's.
    ///
    /// # Safety
    /// It is there.
    pub(crate) unsafe fn handle_at(&self, place: *const c_void) -> u64 {
        // SAFETY: as the caller says.
        unsafe {
            match self.request {
                4 => u64::from(place.cast::<u32>().read_unaligned()),
                _ => place.cast::<u64>().read_unaligned(),
            }
        }
    }

    /// Gives the program a handle.
    ///
    /// # Safety
    /// There is a place for it.
    pub(crate) unsafe fn put_handle(&self, place: *mut c_void, handle: u64) {
        // SAFETY: as the caller says.
        unsafe {
            match self.request {
                4 => place.cast::<u32>().write_unaligned(handle as u32),
                _ => place.cast::<u64>().write_unaligned(handle),
            }
        }
    }

    /// Source and tag of a status that MPI has written.
    pub(crate) fn envelope(&self, status: Status) -> (c_int, c_int) {
        let [source, tag] = self.envelope.map(|place| {
            // SAFETY: a status has these.
            unsafe { status.cast::<c_int>().add(place).read_unaligned() }
        });
        (source, tag)
    }

    /// Has a status have these.
    pub(crate) fn set_envelope(&self, status: Status, source: c_int, tag: c_int) {
        for (place, value) in self.envelope.into_iter().zip([source, tag]) {
            // SAFETY: as above.
            unsafe { status.cast::<c_int>().add(place).write_unaligned(value) };
        }
    }

    pub(crate) fn is_in_place(&self, buffer: *const c_void) -> bool {
        buffer as usize == self.in_place
    }
}

/// Statuses of the program, or of this library if the program wants none.
pub(crate) struct Statuses {
    first: Status,
    _own: Vec<u64>,
}

impl Statuses {
    pub(crate) fn new(given: Status, count: c_int) -> Statuses {
        // Open MPI's and MPICH's addresses for no status.
        if given as usize > 1 {
            return Statuses { first: given, _own: Vec::new() };
        }
        let bytes = usize::try_from(count).unwrap_or(0).max(1) * form().status;
        let mut own = vec![0; bytes.div_ceil(size_of::<u64>())];
        Statuses { first: own.as_mut_ptr().cast(), _own: own }
    }

    pub(crate) fn get(&self, place: usize) -> Status {
        self.first.wrapping_byte_add(place * form().status)
    }
}

pub(crate) fn rank(comm: Handle) -> c_int {
    let mut rank = -1;
    // SAFETY: MPI writes an int.
    unsafe { real!(c"PMPI_Comm_rank", fn(Handle, *mut c_int))(comm, &mut rank) };
    rank
}

pub(crate) fn size(comm: Handle) -> c_int {
    let mut size = 0;
    // SAFETY: MPI writes an int.
    unsafe { real!(c"PMPI_Comm_size", fn(Handle, *mut c_int))(comm, &mut size) };
    size
}

/// The elements that a status says were received; none if they are no whole number.
pub(crate) fn received(status: Status, datatype: Handle) -> Option<usize> {
    let mut count = -1;
    // SAFETY: the status is one that MPI has written.
    unsafe {
        real!(c"PMPI_Get_count", fn(Status, Handle, *mut c_int))(status, datatype, &mut count)
    };
    usize::try_from(count).ok()
}

/// Bytes that a status says were received, if there are not too many for an `int`.
pub(crate) fn received_bytes(status: Status) -> Option<usize> {
    received(status, form().byte)
}

/// Has a status say that so many bytes were received.
pub(crate) fn set_received(status: Status, bytes: u64) {
    // SAFETY: the status is one that MPI has written.
    unsafe {
        real!(c"PMPI_Status_set_elements_x", fn(Status, Handle, i64))(
            status,
            form().byte,
            bytes as i64,
        )
    };
}

/// Bytes of so many elements, without what lies between them.
pub(crate) fn payload(datatype: Handle, count: c_int) -> u64 {
    let mut size = 0;
    // SAFETY: MPI writes an int.
    unsafe { real!(c"PMPI_Type_size", fn(Handle, *mut c_int))(datatype, &mut size) };
    u64::try_from(size).unwrap_or(0) * u64::try_from(count).unwrap_or(0)
}

/// A message does not fit where it is received: what a call of the communicator returns then.
pub(crate) fn is_truncated(comm: Handle) -> c_int {
    let error = form().truncated;
    // SAFETY: it has no other requirements.
    unsafe { real!(c"PMPI_Comm_call_errhandler", fn(Handle, c_int))(comm, error) };
    error
}

/// Whether messages of a communicator go from one group of ranks to another.
pub(crate) fn is_between_groups(comm: Handle) -> bool {
    let mut is = 0;
    // SAFETY: MPI writes an int.
    unsafe { real!(c"PMPI_Comm_test_inter", fn(Handle, *mut c_int))(comm, &mut is) };
    is != 0
}

/// The ranks of a communicator.
pub(crate) struct Group(Handle);

impl Group {
    pub(crate) fn of(comm: Handle) -> Group {
        let mut group = 0;
        // SAFETY: MPI writes a handle.
        unsafe { real!(c"PMPI_Comm_group", fn(Handle, *mut Handle))(comm, &mut group) };
        Group(group)
    }

    /// Which rank of another group one of these is.
    pub(crate) fn rank_in(&self, rank: c_int, other: &Group) -> Option<usize> {
        let mut found = -1;
        // SAFETY: one rank is asked for, and MPI writes an int.
        unsafe {
            real!(
                c"PMPI_Group_translate_ranks",
                fn(Handle, c_int, *const c_int, Handle, *mut c_int)
            )(self.0, 1, &raw const rank, other.0, &mut found)
        };
        usize::try_from(found).ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: it is this value's own.
        unsafe { real!(c"PMPI_Group_free", fn(*mut Handle))(&mut self.0) };
    }
}

/// Where the bytes of some elements lie.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    /// From the buffer's address on.
    pub(crate) offset: isize,
    pub(crate) bytes: usize,
    /// Of one element, if there is nothing between elements and inside of them.
    pub(crate) dense: Option<usize>,
}

/// The span of so many elements of a type.
pub(crate) fn span(datatype: Handle, count: usize) -> Span {
    let (mut size, mut low, mut extent, mut true_low, mut true_extent) = (0, 0, 0, 0, 0);
    // SAFETY: MPI writes an int and integers of an address's size.
    unsafe {
        real!(c"PMPI_Type_size", fn(Handle, *mut c_int))(datatype, &mut size);
        let extent_of = real!(c"PMPI_Type_get_extent", fn(Handle, *mut isize, *mut isize));
        extent_of(datatype, &mut low, &mut extent);
        let true_of = real!(c"PMPI_Type_get_true_extent", fn(Handle, *mut isize, *mut isize));
        true_of(datatype, &mut true_low, &mut true_extent);
    }
    if extent < 0 {
        fail("a datatype with a negative extent lies in device memory, which is not supported");
    }
    let element = usize::try_from(size).unwrap_or(0);
    let dense = (true_low == 0 && true_extent == extent && extent.unsigned_abs() == element)
        .then_some(element);
    let bytes = match count {
        0 => 0,
        _ => (count - 1) * extent.unsigned_abs() + true_extent.unsigned_abs(),
    };
    Span { offset: true_low, bytes, dense }
}

/// Says why a message cannot be, and ends the job as MPI does by default.
pub(crate) fn fail(sentence: &str) -> ! {
    outboard_threads::say(sentence);
    // SAFETY: it has no requirements.
    unsafe { real!(c"PMPI_Abort", fn(Handle, c_int))(form().world, 1) };
    std::process::abort()
}

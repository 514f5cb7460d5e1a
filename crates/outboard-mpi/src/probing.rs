//! Asking what has come before it is received.
//!
//! A message that is a header has another length than the program is to be told, and only who
//! receives it can read that. So what is as long as a header is received when it is asked about,
//! and sent again, by this rank to itself over a communicator that the program does not know. From
//! then on, what the program wants to receive is looked for here first.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::header;
use crate::job::{Job, job};
use crate::mpi::{Handle, SUCCESS, Status, Statuses, form, real, received_bytes, set_received};

/// A message that was asked about: what the program takes it for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    source: c_int,
    tag: c_int,
    /// How long it is; a header's is what it stands for.
    bytes: u64,
}

/// A message that this rank has sent to itself.
struct Held {
    origin: Origin,
    comm: Handle,
    /// Whether earlier messages of its source were there when it was asked about.
    overtakes: bool,
    own_tag: c_int,
    sent: Again,
}

/// What MPI is sending again.
struct Again {
    request: u64,
    _bytes: Box<[u8; header::BYTES]>,
}

#[derive(Default)]
struct Probed {
    held: Vec<Held>,
    last_tag: c_int,
    /// Those that are being received.
    going: Vec<Again>,
    /// Handles of messages that the program is going to receive by these.
    messages: HashMap<u64, Origin>,
}

static PROBED: LazyLock<Mutex<Probed>> = LazyLock::new(Mutex::default);

fn probed() -> MutexGuard<'static, Probed> {
    PROBED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which messages are meant.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) source: c_int,
    pub(crate) tag: c_int,
    pub(crate) comm: Handle,
}

/// The largest tag that MPI grants, of which these have those above 0.
const MOST_TAGS: c_int = 32_767;

impl Origin {
    /// Has a status say where the message comes from, and how long it is.
    pub(crate) fn tell(&self, status: Status) {
        form().set_envelope(status, self.source, self.tag);
        set_received(status, self.bytes);
    }
}

impl Wanted {
    fn has(&self, held: &Held) -> bool {
        let form = form();
        form.same(self.comm, held.comm)
            && (self.source == form.any_source || self.source == held.origin.source)
            && (self.tag == form.any_tag || self.tag == held.origin.tag)
            && !(held.overtakes && self.tag == form.any_tag && self.finds_another(held))
    }

    /// Whether MPI has other messages of a held one's source.
    fn finds_another(&self, held: &Held) -> bool {
        let own = Statuses::new(std::ptr::null_mut(), 1);
        let any = Wanted { source: held.origin.source, tag: form().any_tag, comm: self.comm };
        any.is_there(own.get(0))
    }

    /// Whether MPI has such a message.
    fn is_there(&self, status: Status) -> bool {
        let mut flag = 0;
        // SAFETY: MPI writes an int and a status.
        let result = unsafe {
            real!(c"PMPI_Iprobe", fn(c_int, c_int, Handle, *mut c_int, Status))(
                self.source,
                self.tag,
                self.comm,
                &mut flag,
                status,
            )
        };
        result == SUCCESS && flag != 0
    }
}

/// Where MPI has what the program wants to receive: as the program says, or here.
pub(crate) fn redirect(wanted: Wanted) -> (Wanted, Option<Origin>) {
    let Some(job) = job() else { return (wanted, None) };
    let mut probed = probed();
    let found = probed.held.iter().position(|held| wanted.has(held));
    let Some(place) = found else { return (wanted, None) };
    let held = probed.held.remove(place);
    let here = Wanted { source: job.rank_in_own(), tag: held.own_tag, comm: job.own() };
    probed.going.push(held.sent);
    (here, Some(held.origin))
}

/// The message with a handle was asked about by this library.
pub(crate) fn origin(message: u64) -> Option<Origin> {
    probed().messages.remove(&message)
}

/// What is held and wanted is said in a status; whether there is such a thing.
fn tell_held(wanted: Wanted, status: Status) -> bool {
    let probed = probed();
    let Some(held) = probed.held.iter().find(|held| wanted.has(held)) else { return false };
    held.origin.tell(status);
    true
}

/// MPI has a message, as its status says. It is held from now on if it may be a header. `None` if
/// another thread has received it meanwhile.
fn look(job: &Job, wanted: Wanted, status: Status) -> Option<()> {
    if received_bytes(status) != Some(header::BYTES) {
        return Some(());
    }
    let (source, tag) = form().envelope(status);
    let mut overtakes = false;
    if wanted.tag != form().any_tag {
        let first = Statuses::new(std::ptr::null_mut(), 1);
        let any = Wanted { source, tag: form().any_tag, comm: wanted.comm };
        overtakes = any.is_there(first.get(0)) && form().envelope(first.get(0)).1 != tag;
    }
    let (mut flag, mut message) = (0, 0);
    // SAFETY: MPI writes an int, a handle and a status.
    let result = unsafe {
        let take = real!(c"PMPI_Improbe", fn(c_int, c_int, Handle, *mut c_int, *mut u64, Status));
        take(source, tag, wanted.comm, &mut flag, &mut message, status)
    };
    if result != SUCCESS || flag == 0 {
        return None;
    }
    hold(job, &mut message, (wanted.comm, overtakes), status)?.tell(status);
    Some(())
}

/// Receives a message and sends it to this rank itself. `None` if it is longer than a header, which
/// it was not when it was asked about.
fn hold(
    job: &Job,
    message: &mut u64,
    (comm, overtakes): (Handle, bool),
    status: Status,
) -> Option<Origin> {
    let mut bytes = Box::new([0_u8; header::BYTES]);
    let (source, tag) = form().envelope(status);
    let byte = form().byte();
    // SAFETY: the buffer has so many bytes.
    unsafe {
        real!(c"PMPI_Mrecv", fn(*mut c_void, c_int, Handle, *mut u64, Status))(
            bytes.as_mut_ptr().cast(),
            header::BYTES as c_int,
            byte,
            message,
            status,
        )
    };
    let len = job.header(&bytes).map_or(header::BYTES as u64, |header| header.bytes);
    let origin = Origin { source, tag, bytes: len };
    let mut probed = probed();
    probed.going.retain_mut(|again| !again.is_done());
    probed.last_tag = probed.last_tag % MOST_TAGS + 1;
    let own_tag = probed.last_tag;
    let mut request = 0;
    // SAFETY: the bytes are kept until the request is done.
    unsafe {
        real!(c"PMPI_Isend", fn(*const c_void, c_int, Handle, c_int, c_int, Handle, *mut u64))(
            bytes.as_ptr().cast(),
            header::BYTES as c_int,
            byte,
            job.rank_in_own(),
            own_tag,
            job.own(),
            &mut request,
        )
    };
    let sent = Again { request, _bytes: bytes };
    probed.held.push(Held { origin, comm, overtakes, own_tag, sent });
    Some(origin)
}

impl Again {
    fn is_done(&mut self) -> bool {
        let (mut flag, own) = (0, Statuses::new(std::ptr::null_mut(), 1));
        // SAFETY: a request of this library's.
        unsafe {
            real!(c"PMPI_Test", fn(*mut u64, *mut c_int, Status))(
                &mut self.request,
                &mut flag,
                own.get(0),
            )
        };
        flag != 0
    }
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Probe(
    source: c_int,
    tag: c_int,
    comm: Handle,
    status: Status,
) -> c_int {
    let (wanted, statuses) = (Wanted { source, tag, comm }, Statuses::new(status, 1));
    let told = statuses.get(0);
    loop {
        if job().is_some() && tell_held(wanted, told) {
            return SUCCESS;
        }
        // SAFETY: the status is there, and the rest is the caller's.
        let result = unsafe {
            real!(c"PMPI_Probe", fn(c_int, c_int, Handle, Status))(source, tag, comm, told)
        };
        let Some(job) = job().filter(|_| result == SUCCESS) else { return result };
        if look(job, wanted, told).is_some() {
            return result;
        }
    }
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Iprobe(
    source: c_int,
    tag: c_int,
    comm: Handle,
    flag: *mut c_int,
    status: Status,
) -> c_int {
    let (wanted, statuses) = (Wanted { source, tag, comm }, Statuses::new(status, 1));
    let told = statuses.get(0);
    // SAFETY: the program's int and a status are there, and the rest is the caller's.
    unsafe {
        if job().is_some() && tell_held(wanted, told) {
            *flag = 1;
            return SUCCESS;
        }
        let ask = real!(c"PMPI_Iprobe", fn(c_int, c_int, Handle, *mut c_int, Status));
        let result = ask(source, tag, comm, flag, told);
        if let Some(job) = job()
            && result == SUCCESS
            && *flag != 0
            && look(job, wanted, told).is_none()
        {
            *flag = 0;
        }
        result
    }
}

/// A handle for a message that is held, in place of the one that the program got or would get.
///
/// # Safety
/// There is a place for a handle.
unsafe fn handle(wanted: Wanted, message: *mut c_void, told: Status) -> bool {
    let (here, Some(origin)) = redirect(wanted) else { return false };
    let mut number = 0_u64;
    // SAFETY: MPI writes a handle.
    unsafe {
        real!(c"PMPI_Mprobe", fn(c_int, c_int, Handle, *mut u64, Status))(
            here.source,
            here.tag,
            here.comm,
            &mut number,
            told,
        );
        form().put_handle(message, number);
    }
    origin.tell(told);
    probed().messages.insert(number, origin);
    true
}

/// MPI has given the program a message; it gets another handle if that may be a header.
///
/// # Safety
/// The handle is there.
unsafe fn exchange(wanted: Wanted, message: *mut c_void, told: Status) {
    let Some(job) = job().filter(|_| received_bytes(told) == Some(header::BYTES)) else { return };
    let (source, tag) = form().envelope(told);
    // SAFETY: as the caller says.
    let mut number = unsafe { form().handle_at(message) };
    if hold(job, &mut number, (wanted.comm, false), told).is_some() {
        // SAFETY: as the caller says.
        unsafe { handle(Wanted { source, tag, ..wanted }, message, told) };
    }
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Mprobe(
    source: c_int,
    tag: c_int,
    comm: Handle,
    message: *mut c_void,
    status: Status,
) -> c_int {
    let (wanted, statuses) = (Wanted { source, tag, comm }, Statuses::new(status, 1));
    let told = statuses.get(0);
    // SAFETY: a status is there, and the rest is the caller's.
    unsafe {
        if handle(wanted, message, told) {
            return SUCCESS;
        }
        let ask = real!(c"PMPI_Mprobe", fn(c_int, c_int, Handle, *mut c_void, Status));
        let result = ask(source, tag, comm, message, told);
        if result == SUCCESS {
            exchange(wanted, message, told);
        }
        result
    }
}

/// # Safety
/// As MPI says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPI_Improbe(
    source: c_int,
    tag: c_int,
    comm: Handle,
    flag: *mut c_int,
    message: *mut c_void,
    status: Status,
) -> c_int {
    let (wanted, statuses) = (Wanted { source, tag, comm }, Statuses::new(status, 1));
    let told = statuses.get(0);
    // SAFETY: the program's int and a status are there, and the rest is the caller's.
    unsafe {
        if handle(wanted, message, told) {
            *flag = 1;
            return SUCCESS;
        }
        let ask = real!(c"PMPI_Improbe", fn(c_int, c_int, Handle, *mut c_int, *mut c_void, Status));
        let result = ask(source, tag, comm, flag, message, told);
        if result == SUCCESS && *flag != 0 {
            exchange(wanted, message, told);
        }
        result
    }
}

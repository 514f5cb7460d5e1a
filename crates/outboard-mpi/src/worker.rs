//! What Outboard's driver library has its worker do with messages, by a private table.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use outboard_abi::CUresult;
use outboard_abi::own_tables::MESSAGES;

/// Words of the table, of which the first is its size in bytes.
const WORDS: usize = 7;

type Whereabouts = unsafe extern "C" fn(*mut u8, usize) -> usize;
type Ticket = unsafe extern "C" fn(u32, *mut [u8; 16]) -> CUresult;
type Link =
    unsafe extern "C" fn(u32, *const u8, usize, *const [u8; 16], *mut c_char, usize) -> CUresult;
type Offer = unsafe extern "C" fn(u32, u64, u64, u64, *mut u32) -> CUresult;
type Take = unsafe extern "C" fn(u32, u64, u64, u64, u32, *mut u32) -> CUresult;
type Refuse = unsafe extern "C" fn(u32, u64) -> CUresult;

/// This process's worker.
pub(crate) struct Worker {
    whereabouts: Whereabouts,
    ticket: Ticket,
    link: Link,
    offer: Offer,
    take: Take,
    refuse: Refuse,
}

/// The worker, if the driver library is Outboard's.
pub(crate) fn worker() -> Option<&'static Worker> {
    static WORKER: OnceLock<Option<Worker>> = OnceLock::new();
    WORKER.get_or_init(find).as_ref()
}

fn find() -> Option<Worker> {
    let table = outboard_table::find(&MESSAGES)?;
    if table.len() != WORDS {
        return None;
    }
    // SAFETY: these are the functions that stand there.
    unsafe {
        Some(Worker {
            whereabouts: std::mem::transmute::<usize, Whereabouts>(table[1]),
            ticket: std::mem::transmute::<usize, Ticket>(table[2]),
            link: std::mem::transmute::<usize, Link>(table[3]),
            offer: std::mem::transmute::<usize, Offer>(table[4]),
            take: std::mem::transmute::<usize, Take>(table[5]),
            refuse: std::mem::transmute::<usize, Refuse>(table[6]),
        })
    }
}

impl Worker {
    /// What another process's worker needs to call this one; none if it cannot be called.
    pub(crate) fn whereabouts(&self, room: usize) -> Option<Vec<u8>> {
        let mut all = vec![0; room];
        // SAFETY: there is so much room.
        let len = unsafe { (self.whereabouts)(all.as_mut_ptr(), room) };
        all.truncate(len);
        (len > 0).then_some(all)
    }

    /// The right to call this worker for a link.
    pub(crate) fn ticket(&self, link: u32) -> Option<[u8; 16]> {
        let mut ticket = [0; 16];
        // SAFETY: a place for a ticket.
        let result = unsafe { (self.ticket)(link, &raw mut ticket) };
        (result == CUresult::CUDA_SUCCESS).then_some(ticket)
    }

    /// Calls another worker, or says why it cannot.
    pub(crate) fn link(
        &self,
        link: u32,
        whereabouts: &[u8],
        ticket: &[u8; 16],
    ) -> Result<(), String> {
        let mut why = [0; 512];
        let (from, len) = (whereabouts.as_ptr(), whereabouts.len());
        // SAFETY: all are there, and so much room is.
        let result =
            unsafe { (self.link)(link, from, len, ticket, why.as_mut_ptr().cast(), why.len()) };
        if result == CUresult::CUDA_SUCCESS {
            return Ok(());
        }
        let why = CStr::from_bytes_until_nul(&why).unwrap_or_default();
        Err(why.to_string_lossy().into_owned())
    }

    /// Has the worker keep device memory for another one. If it does not, MPI has to carry it.
    pub(crate) fn offer(&self, (link, number): (u32, u64), address: u64, bytes: u64) -> bool {
        let mut taken = 0;
        // SAFETY: a place for the answer.
        let result = unsafe { (self.offer)(link, number, address, bytes, &raw mut taken) };
        result == CUresult::CUDA_SUCCESS && taken != 0
    }

    /// Stores what another worker has kept in device memory, or combines the two; or says why not.
    pub(crate) fn take(
        &self,
        (link, number): (u32, u64),
        address: u64,
        bytes: u64,
        combine: u32,
    ) -> Result<(), String> {
        let mut came = 0;
        // SAFETY: a place for the answer.
        let result = unsafe { (self.take)(link, number, address, bytes, combine, &raw mut came) };
        match (result, came) {
            (CUresult::CUDA_SUCCESS, 0) => Err("the link between the servers is lost".to_owned()),
            (CUresult::CUDA_SUCCESS, _) => Ok(()),
            (error, _) => Err(format!("CUDA's error {}", error.0)),
        }
    }

    /// Tells another worker that it need not keep something.
    pub(crate) fn refuse(&self, (link, number): (u32, u64)) {
        // SAFETY: numbers. If the server is lost, so are its links.
        unsafe { (self.refuse)(link, number) };
    }
}

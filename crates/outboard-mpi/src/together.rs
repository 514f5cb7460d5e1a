//! Messages of all ranks of a communicator whose bytes go from worker to worker.
//!
//! All are made of one step: each rank offers parts of its memory to others, MPI exchanges the
//! headers, and each rank takes what is for it. Before a step is made and before anything is taken,
//! all ranks agree that all can; if not, MPI carries the bytes as if there were no workers.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use outboard_wire::combine::Combine;

use crate::device::DeviceMemory;
use crate::header;
use crate::job::{Job, job, sender};
use crate::kinds::int_and_min;
use crate::mpi::{self, Handle, SUCCESS, fail, form, payload, real, span};
use crate::worker::Worker;

/// Parts begin at multiples of so many bytes.
const ALIGNMENT: u64 = 256;

/// The ranks of a communicator, among which bytes may go from worker to worker.
pub(crate) struct Circle {
    job: &'static Job,
    /// Of the world.
    ranks: Vec<usize>,
    own: usize,
    comm: Handle,
}

/// Elements without gaps in memory that only the device uses.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    memory: DeviceMemory,
    address: u64,
    bytes: u64,
}

impl Place {
    /// None if it is something else.
    pub(crate) fn of(buffer: *const c_void, count: c_int, datatype: Handle) -> Option<Place> {
        if buffer.is_null() || form().is_in_place(buffer) {
            return None;
        }
        span(datatype, 1).dense?;
        Place::at(DeviceMemory::of(buffer)?, payload(datatype, count))
    }

    pub(crate) fn at(memory: DeviceMemory, bytes: u64) -> Option<Place> {
        Some(Place { memory, address: memory.of_device_only()?, bytes })
    }

    /// Copies all of another one to an offset of this one.
    pub(crate) fn copy_from(&self, offset: u64, other: &Place) {
        if self.address + offset != other.address {
            self.memory.copy_from(offset as isize, other.memory, other.bytes);
        }
    }
}

impl Circle {
    /// The ranks of a communicator, for messages of so many bytes: all of them call this with the
    /// same number, and all get a circle or none does. `ready`: whether this rank's memory is such
    /// that it can take part.
    pub(crate) fn agreed(comm: Handle, bytes: u64, ready: bool) -> Option<Circle> {
        let job = job()?;
        let ranks = job.circle(comm, bytes)?;
        let own = usize::try_from(mpi::rank(comm)).ok()?;
        let circle = Circle { job, ranks, own, comm };
        circle.agree(ready).then_some(circle)
    }

    /// Whether all ranks can.
    fn agree(&self, can: bool) -> bool {
        let Some((int, least)) = int_and_min() else { return false };
        let (own, mut all) = (c_int::from(can), 0);
        let reduce =
            real!(c"PMPI_Allreduce", fn(*const c_int, *mut c_int, c_int, Handle, Handle, Handle));
        // SAFETY: one int goes in, and one comes out.
        let result = unsafe { reduce(&raw const own, &mut all, 1, int, least, self.comm) };
        result == SUCCESS && all != 0
    }

    pub(crate) fn size(&self) -> usize {
        self.ranks.len()
    }

    /// Cuts a message into a part for each of these ranks. A part may be empty.
    pub(crate) fn parts(&self, bytes: u64, of: impl Fn(usize) -> bool) -> Vec<Range<u64>> {
        let many = (0..self.size()).filter(|rank| of(*rank)).count().max(1) as u64;
        let part = bytes.div_ceil(many).next_multiple_of(ALIGNMENT);
        let mut begin = 0;
        let cut = |rank| {
            let end = if of(rank) { bytes.min(begin + part) } else { begin };
            std::mem::replace(&mut begin, end)..end
        };
        (0..self.size()).map(cut).collect()
    }

    /// Sends parts of memory to other ranks, and stores or combines what they send. Whether that
    /// has been done; if not, nothing has changed. An empty part is none.
    pub(crate) fn exchange(
        &self,
        (out, sent): (&Place, &[Range<u64>]),
        (into, received): (&Place, &[Range<u64>]),
        combine: Option<Combine>,
    ) -> bool {
        let mut headers = vec![0_u8; self.size() * header::BYTES];
        let mut can = true;
        let (slots, _) = headers.as_chunks_mut::<{ header::BYTES }>();
        for (rank, slot) in slots.iter_mut().enumerate() {
            let part = sent.get(rank).cloned().unwrap_or_default();
            if rank == self.own || part.is_empty() || !can {
                continue;
            }
            let (address, bytes) = (out.address + part.start, part.end - part.start);
            match self.job.offer_to(self.ranks[rank], address, bytes) {
                Some(header) => *slot = self.job.encode(&header),
                None => can = false,
            }
        }
        let come = self.swap(&headers);
        let can = self.agree(can);
        let Some(worker) = self.job.worker() else { return false };
        // Beginning with the next rank, so that not all ask the same one.
        for step in 1..self.size() {
            let rank = (self.own + step) % self.size();
            let Some(header) = come.get(rank).and_then(|slot| self.job.header(slot)) else {
                continue;
            };
            let part = received.get(rank).cloned().unwrap_or_default();
            if !can || header.bytes != part.end.saturating_sub(part.start) {
                worker.refuse((header.link, header.number));
                continue;
            }
            take(worker, &header, into.address + part.start, combine);
        }
        can
    }

    /// Has MPI exchange headers.
    fn swap(&self, headers: &[u8]) -> Vec<[u8; header::BYTES]> {
        let mut come = vec![[0_u8; header::BYTES]; self.size()];
        let byte = form().byte();
        let exchange = real!(
            c"PMPI_Alltoall",
            fn(*const c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle)
        );
        let (count, to) = (header::BYTES as c_int, come.as_mut_ptr().cast());
        // SAFETY: both have so many bytes for each rank.
        unsafe { exchange(headers.as_ptr().cast(), count, byte, to, count, byte, self.comm) };
        come
    }

    /// Each rank has its part of some memory: all of these ranks get it. The parts are the same for
    /// all ranks.
    pub(crate) fn spread(
        &self,
        place: &Place,
        parts: &[Range<u64>],
        receives: impl Fn(usize) -> bool,
    ) {
        let own = parts.get(self.own).cloned().unwrap_or_default();
        let out: Vec<Range<u64>> =
            (0..self.size()).map(|rank| if receives(rank) { own.clone() } else { 0..0 }).collect();
        let none = vec![0..0; self.size()];
        let come = if receives(self.own) { parts } else { &none };
        if !self.exchange((place, &out), (place, come), None) {
            self.spread_by_mpi(place, parts);
        }
    }

    /// The same, if some worker could not keep a part.
    fn spread_by_mpi(&self, place: &Place, parts: &[Range<u64>]) {
        let tell = real!(c"PMPI_Bcast", fn(*mut c_void, c_int, Handle, c_int, Handle));
        for (rank, part) in parts.iter().enumerate() {
            let mut begin = part.start;
            while begin < part.end {
                let len = (part.end - begin).min(64 << 20);
                let mut bytes = vec![0; len as usize];
                if rank == self.own {
                    place.memory.read(begin as isize, &mut bytes);
                }
                let (to, count) = (bytes.as_mut_ptr().cast(), len as c_int);
                // SAFETY: the buffer has so many bytes.
                unsafe { tell(to, count, form().byte(), rank as c_int, self.comm) };
                if rank != self.own {
                    place.memory.write(begin as isize, &bytes);
                }
                begin += len;
            }
        }
    }

    /// The root's memory to all.
    pub(crate) fn broadcast(&self, place: &Place, root: usize) -> bool {
        if root >= self.size() {
            return false;
        }
        let parts = self.parts(place.bytes, |rank| rank != root);
        let none = vec![0..0; self.size()];
        let out = if self.own == root { &parts } else { &none };
        let mut come = none.clone();
        if self.own != root {
            come[root] = parts[self.own].clone();
        }
        if !self.exchange((place, out), (place, &come), None) {
            return false;
        }
        if self.size() > 2 {
            self.spread(place, &parts, |rank| rank != root);
        }
        true
    }

    /// What all ranks' elements become together, in the memory where this rank's are; at these
    /// ranks. Elsewhere, the memory is not what it was.
    pub(crate) fn reduce(
        &self,
        place: &Place,
        combine: Combine,
        receives: impl Fn(usize) -> bool,
    ) -> bool {
        let parts = self.parts(place.bytes, |_| true);
        let come = vec![parts[self.own].clone(); self.size()];
        if !self.exchange((place, &parts), (place, &come), Some(combine)) {
            return false;
        }
        self.spread(place, &parts, receives);
        true
    }
}

fn take(worker: &Worker, header: &header::Header, address: u64, combine: Option<Combine>) {
    let header::Header { link, number, bytes } = *header;
    let code = combine.map_or(0, Combine::code);
    if let Err(why) = worker.take((link, number), address, bytes, code) {
        fail(&format!("a message of rank {} is lost: {why}", sender(link)));
    }
}

//! Groups: the calls of a thread between `ncclGroupStart` and `ncclGroupEnd`. A call outside is a
//! group of one.

use core::cell::RefCell;
use core::ffi::c_void;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use outboard_abi::CUresult;
use outboard_wire::collectives::CommCall;

use super::running::{self, Running};
use super::{Failure, Outcome, captured, ending, result};
use crate::backend::{Backend, CollectivesDone, ContextId, GroupOutcome};
use crate::parts::collectives::{Comm, Shape};
use crate::process::{Front, Process};

/// How long ranks may take to come, unless the user says otherwise.
const INIT: Duration = Duration::from_secs(600);
/// The variable by which the user does, in seconds; 0 waits without end.
const INIT_VARIABLE: &str = "OUTBOARD_NCCL_INIT_TIMEOUT";

/// A place of the program for a handle.
#[derive(Clone, Copy)]
pub(crate) struct Out(*mut *mut c_void);

// SAFETY: the program keeps the place until the call is done, and leaves it alone.
unsafe impl Send for Out {}

impl Out {
    /// # Safety
    /// It is valid for writes until the call is done for which it is given.
    pub(crate) unsafe fn new(place: *mut *mut c_void) -> Out {
        Out(place)
    }

    fn put(self, value: u64) {
        // SAFETY: as said where it was made.
        unsafe { self.0.write(value as *mut c_void) };
    }
}

/// What is to be done when a call is done.
pub(crate) enum After {
    Nothing,
    /// The communicator is new.
    Made(Arc<Comm>, Out),
    /// The call's value is a handle that goes there.
    Gives(Out),
}

/// A call in a group.
pub(crate) struct Entry {
    /// The communicator that it is about, or that it makes.
    pub(crate) comm: Arc<Comm>,
    pub(crate) call: CommCall,
    pub(crate) after: After,
}

#[derive(Default)]
struct Group {
    depth: usize,
    entries: Vec<Entry>,
    /// The first failure of a call in it.
    failed: Option<Failure>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// `ncclGroupStart`.
pub(crate) fn start() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

/// `ncclGroupEnd`; the calls are made if it is the outermost one.
pub(crate) fn end<B: Backend>(process: &'static Process<B>) -> Outcome<()> {
    let ended = GROUP.with_borrow_mut(|group| {
        if group.depth == 0 {
            return Err(Failure::usage("ncclGroupEnd without ncclGroupStart"));
        }
        group.depth -= 1;
        Ok((group.depth == 0).then(|| std::mem::take(group)))
    })?;
    match ended {
        None => Ok(()),
        Some(Group { failed: Some(failure), entries, .. }) => {
            // None of the group's calls is made.
            entries.iter().for_each(|entry| drop_made(process, entry, &failure));
            Err(failure)
        }
        Some(Group { entries, .. }) => run(process, entries),
    }
}

/// Gives up the group of this thread.
pub(crate) fn abandon(front: &'static Front, failure: &Failure) {
    let group = GROUP.with_borrow_mut(std::mem::take);
    group.entries.iter().for_each(|entry| drop_made(front, entry, failure));
}

/// Makes a call, or adds it to the group of this thread.
pub(crate) fn add<B: Backend>(process: &'static Process<B>, entry: Entry) -> Outcome<()> {
    let entry = GROUP.with_borrow_mut(|group| match group.depth {
        0 => Some(entry),
        _ => {
            group.entries.push(entry);
            None
        }
    });
    entry.map_or(Ok(()), |entry| run(process, vec![entry]))
}

/// A call has failed; the group that it is in, if any, will fail with it.
pub(crate) fn failed(failure: &Failure) {
    GROUP.with_borrow_mut(|group| {
        if group.depth > 0 && group.failed.is_none() {
            group.failed = Some(failure.clone());
        }
    });
}

/// One server's part of a group.
struct Part {
    ctx: ContextId,
    entries: Vec<Entry>,
    /// Of each communicator whose collectives are in it.
    shapes: Vec<(Arc<Comm>, Shape)>,
    /// Whether other ranks need not come for it.
    is_known: bool,
}

impl Part {
    fn new(ctx: ContextId, entries: Vec<Entry>) -> Part {
        let mut shapes: Vec<(Arc<Comm>, Shape)> = Vec::new();
        let mut only_collectives = true;
        for entry in &entries {
            let CommCall::Collective(call) = &entry.call else {
                only_collectives = false;
                continue;
            };
            let comm = &entry.comm;
            let by_address = comm.shapes.by_address();
            match shapes.iter_mut().find(|(of, _)| Arc::ptr_eq(of, comm)) {
                Some((_, shape)) => shape.add(call, by_address),
                None => {
                    let mut shape = Shape::default();
                    shape.add(call, by_address);
                    shapes.push((Arc::clone(comm), shape));
                }
            }
        }
        let is_known =
            only_collectives && shapes.iter().all(|(comm, shape)| comm.shapes.has(shape));
        Part { ctx, entries, shapes, is_known }
    }

    fn calls(&self) -> Vec<CommCall> {
        self.entries.iter().map(|entry| entry.call.clone()).collect()
    }

    fn comms(&self) -> Vec<Arc<Comm>> {
        self.entries.iter().map(|entry| Arc::clone(&entry.comm)).collect()
    }

    /// Whether it makes communicators.
    fn makes(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry.after, After::Made(..)))
    }

    /// The part is done.
    fn finish(&self, front: &'static Front, outcome: &Outcome<Vec<u64>>) {
        match outcome {
            Ok(values) => {
                self.shapes.iter().for_each(|(comm, shape)| comm.shapes.add(shape));
                let values = values.iter().copied().chain(std::iter::repeat(0));
                self.entries.iter().zip(values).for_each(|(entry, value)| entry.done(value));
            }
            Err(failure) => {
                self.entries.iter().for_each(|entry| entry.failed(front, failure));
            }
        }
    }
}

impl Entry {
    fn done(&self, value: u64) {
        match &self.after {
            After::Made(comm, _) => {
                if value != 0 {
                    comm.is_member(value);
                }
                comm.set(result::SUCCESS, "");
            }
            After::Gives(out) => {
                self.comm.shapes.buffers_changed();
                out.put(value);
            }
            After::Nothing if self.comm.state() == result::IN_PROGRESS => {
                self.comm.set(result::SUCCESS, "");
            }
            After::Nothing => {}
        }
    }

    fn failed(&self, front: &'static Front, failure: &Failure) {
        match &self.after {
            // The program has to abort it.
            After::Made(comm, _) if !comm.blocking => comm.set(failure.result, &failure.sentence),
            After::Made(..) => drop_made(front, self, failure),
            _ if !self.comm.blocking => self.comm.set(failure.result, &failure.sentence),
            _ => {}
        }
    }
}

/// A communicator is not made after all.
fn drop_made(front: &'static Front, entry: &Entry, failure: &Failure) {
    if let After::Made(comm, out) = &entry.after {
        comm.set(failure.result, &failure.sentence);
        front.communicators.table.remove(comm.handle);
        out.put(0);
    }
}

/// Makes the calls of a group: each server gets its part before any is waited for.
fn run<B: Backend>(process: &'static Process<B>, entries: Vec<Entry>) -> Outcome<()> {
    if entries.is_empty() {
        return Ok(());
    }
    if ending::is_it(&entries) {
        return ending::run(process, entries);
    }
    let blocking = entries.iter().all(Entry::waits);
    if !blocking && entries.iter().any(Entry::waits) {
        let failure =
            Failure::argument("a group has communicators that block and others that do not");
        entries.iter().for_each(|entry| drop_made(process, entry, &failure));
        return Err(failure);
    }
    if let Some(capture) = captured::of(process, &entries)? {
        return captured::run(process, capture, entries);
    }
    let parts = by_server(entries).map(|(ctx, entries)| Part::new(ctx, entries));
    let parts: Vec<Part> = parts.collect();
    if blocking { run_and_wait(process, parts) } else { run_beside(process, parts) }
}

/// The calls for each server, and a context there.
pub(super) fn by_server(entries: Vec<Entry>) -> impl Iterator<Item = (ContextId, Vec<Entry>)> {
    let mut servers: BTreeMap<_, (ContextId, Vec<Entry>)> = BTreeMap::new();
    for entry in entries {
        let ctx = entry.comm.ctx;
        servers.entry(ctx.server()).or_insert_with(|| (ctx, Vec::new())).1.push(entry);
    }
    servers.into_values()
}

impl Entry {
    /// Whether the call returns when it is done. What ends a communicator always does: the program
    /// has no handle by which it could ask.
    fn waits(&self) -> bool {
        let comm = match &self.after {
            After::Made(made, _) => made,
            _ => &self.comm,
        };
        comm.blocking || matches!(self.call, CommCall::Destroy { .. })
    }
}

fn run_and_wait<B: Backend>(process: &'static Process<B>, parts: Vec<Part>) -> Outcome<()> {
    let mut waiting: Vec<(Part, Outcome<Running>)> = Vec::new();
    let mut outcome = Ok(());
    for part in parts {
        if part.is_known {
            outcome = outcome.and(post(process, &part));
        } else {
            let running = running::begin(process, part.ctx, part.calls());
            waiting.push((part, running));
        }
    }
    let mut outcome = outcome.map_err(Failure::from);
    for (part, running) in waiting {
        let limit = if part.makes() { init_limit() } else { None };
        let done = running.and_then(|running| running.wait(process, &part.comms(), limit));
        part.finish(process, &done);
        outcome = outcome.and(done.map(drop));
    }
    outcome
}

/// Posts what waits for nobody. Threads that are ranks of their own may run ahead of each other.
fn post<B: Backend>(process: &'static Process<B>, part: &Part) -> Result<(), CUresult> {
    process.backend.collectives_post(part.ctx, part.calls())?;
    let ([(comm, _)], Some(Entry { call: CommCall::Collective(call), .. })) =
        (part.shapes.as_slice(), part.entries.last())
    else {
        return Ok(());
    };
    let is_only_rank = process.communicators.made.load(Ordering::Relaxed) < 2;
    if !is_only_rank && comm.is_too_far_ahead() {
        crate::profile::waited(|| process.backend.stream_synchronize(part.ctx, call.stream))?;
    }
    Ok(())
}

/// The calls go on while the program does something else, and asks about its communicators.
fn run_beside<B: Backend>(process: &'static Process<B>, parts: Vec<Part>) -> Outcome<()> {
    let front: &'static Front = process;
    let mut outcome = Ok(());
    for part in parts {
        if part.is_known {
            post(process, &part)?;
            continue;
        }
        for entry in &part.entries {
            entry.comm.set(result::IN_PROGRESS, "");
            if let After::Made(comm, _) = &entry.after {
                comm.set(result::IN_PROGRESS, "");
            }
        }
        let (ctx, calls) = (part.ctx, part.calls());
        let then = move |told: Result<GroupOutcome, CUresult>| {
            part.finish(front, &running::values(told));
        };
        process.backend.collectives_begin(ctx, calls, CollectivesDone::new(then))?;
        outcome = Err(Failure::in_progress());
    }
    outcome
}

/// How long ranks may take to come; `None`: without end.
fn init_limit() -> Option<Duration> {
    static LIMIT: OnceLock<Option<Duration>> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let said = std::env::var(INIT_VARIABLE).ok().and_then(|text| text.trim().parse().ok());
        let limit = said.map_or(INIT, Duration::from_secs);
        (!limit.is_zero()).then_some(limit)
    })
}

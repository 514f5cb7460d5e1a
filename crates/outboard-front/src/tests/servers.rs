//! One process over several servers: which of them is asked, and what is refused.

mod fills;
mod legacy;
mod links;

use core::ffi::c_void;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use outboard_abi::{
    CUdevice_P2PAttribute, CUmemAccessDesc, CUmemAllocationProp, CUmemLocationType, CUresult,
};

use parking_lot::Mutex;

use super::program::{IMAGE, nothing, prepare};
use super::*;
use crate::backend::{
    ContextId, DevicePtr, Extent, ObjectId, Recorder, Result, ServerId, Side, StreamId, UnifiedPtr,
    VirtualMemory as _,
};
use crate::process::Process;
use crate::several::{Awaited, HalfCopy, Hold, Linked, Member, Numbered, OwnStream, Several, Then};

/// Whether a server reaches another one, or why not.
type Reached = std::result::Result<(), String>;

thread_local! {
    /// The servers of this test's process but the first, and the list of all.
    static OTHERS: RefCell<Vec<&'static Recorder>> = const { RefCell::new(Vec::new()) };
    static LIST: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// What people have been told.
    pub(crate) static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

impl Member for Recorder {
    fn list() -> Vec<ServerId> {
        LIST.with_borrow(|list| list.iter().filter_map(|place| ServerId::new(*place)).collect())
    }

    fn of_server(server: ServerId) -> &'static Recorder {
        OTHERS.with_borrow(|others| others[server.place() - 1])
    }

    fn hold(&'static self, _: ContextId, _: StreamId) -> Result<Option<Hold>> {
        let crossed = Crossed::of(self);
        if crossed.has_no_room.load(Ordering::Relaxed) {
            return Ok(None);
        }
        crossed.note("hold");
        Ok(Some(Box::new(Released(self))))
    }

    fn when_done(&'static self, _: ContextId, what: Awaited, then: Then) -> Result<()> {
        let crossed = Crossed::of(self);
        crossed.note(if matches!(what, Awaited::Event(_)) { "event" } else { "stream" });
        crossed.later.lock().push(then);
        Ok(())
    }

    fn is_known_to_be_done(&'static self, _: ContextId, _: Awaited) -> bool {
        false
    }

    fn has_bytes_to_take_in(&'static self) -> bool {
        false
    }

    fn take_in(&'static self) {}

    fn fail_later(&'static self, error: CUresult) {
        Crossed::of(self).note(&format!("fails with {}", error.0));
    }

    fn link_to(
        &'static self,
        other: &'static Recorder,
        link: u32,
    ) -> std::result::Result<Linked, String> {
        let crossed = Crossed::of(self);
        let answer = crossed.reaches.lock().clone();
        if answer.is_some() {
            crossed.note(&format!("link {link}"));
            Crossed::of(other).note(&format!("called {link}"));
        }
        answer.unwrap_or(Err("this one has no links".to_owned()))?;
        Ok(crossed.places.lock().take())
    }

    fn say(sentence: &str) {
        SAID.with_borrow_mut(|said| said.push(sentence.to_owned()));
    }

    fn has_lost_link(&'static self, link: u32) -> bool {
        Crossed::of(self).lost_links.lock().contains(&link)
    }

    fn is_for_links(&'static self, _: &Side, _: Extent) -> bool {
        Crossed::of(self).reaches.lock().is_some()
    }

    fn copy_over_link(&'static self, numbered: Numbered, half: &HalfCopy) -> Result<()> {
        let Numbered { link, number, .. } = numbered;
        let HalfCopy { way, leads, stream, .. } = half;
        let does = if *leads { "leads" } else { "follows" };
        let note = format!("{way:?} {number} of {link} {does} in {}", stream.0);
        Crossed::of(self).note(&note);
        Ok(())
    }

    fn tell_peer(&'static self, numbered: Numbered, _: ContextId, _: ObjectId) -> Result<()> {
        Crossed::of(self).note(&format!("tells {} of {}", numbered.number, numbered.link));
        Ok(())
    }

    fn wait_for_peer(&'static self, numbered: Numbered, _: ContextId, _: StreamId) -> Result<()> {
        Crossed::of(self).note(&format!("waits for {} of {}", numbered.number, numbered.link));
        Ok(())
    }

    fn take_part(
        &'static self,
        _: ContextId,
        (_, of): (&'static Recorder, ContextId),
        address: UnifiedPtr,
    ) -> Result<()> {
        let crossed = Crossed::of(self);
        if crossed.has_no_room.load(Ordering::Relaxed) {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        crossed.note(&format!("takes part in {:x} of {}", address.0, of.server().place()));
        Ok(())
    }

    fn own_stream(&'static self, _: ContextId, which: OwnStream) -> Result<StreamId> {
        Ok(StreamId(if which == OwnStream::Held { 901 } else { 902 }))
    }
}

/// What a recorder was asked as one of several servers.
#[derive(Default)]
pub(crate) struct Crossed {
    notes: Mutex<Vec<String>>,
    later: Mutex<Vec<Then>>,
    /// Whether it can hold no streams.
    has_no_room: AtomicBool,
    /// Whether it can connect to others, or why not; unless this is set, it has no links.
    pub(crate) reaches: Mutex<Option<Reached>>,
    pub(crate) lost_links: Mutex<Vec<u32>>,
    /// The memory that it shares with the next one that it connects to.
    pub(crate) places: Mutex<Linked>,
}

/// Notes that a stream goes on.
struct Released(&'static Recorder);

impl Drop for Released {
    fn drop(&mut self) {
        Crossed::of(self.0).note("goes on");
    }
}

impl Crossed {
    pub(crate) fn of(recorder: &'static Recorder) -> &'static Crossed {
        static ALL: Mutex<BTreeMap<usize, &'static Crossed>> = Mutex::new(BTreeMap::new());
        ALL.lock()
            .entry(std::ptr::from_ref(recorder) as usize)
            .or_insert_with(|| Box::leak(Box::default()))
    }

    fn note(&self, what: &str) {
        self.notes.lock().push(what.to_owned());
    }

    /// What was noted since the last time, once there are so many notes.
    pub(crate) fn take(&self, count: usize) -> Vec<String> {
        let start = Instant::now();
        while self.notes.lock().len() < count && start.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        std::mem::take(&mut *self.notes.lock())
    }

    /// What is waited for happens, or fails.
    pub(super) fn happens(&self, outcome: Result<()>) {
        let all = std::mem::take(&mut *self.later.lock());
        assert!(!all.is_empty(), "something is waited for");
        all.into_iter().for_each(|then| then(outcome));
    }
}

/// A process over two servers, each with two devices: 0 and 1 are the first one's, 2 and 3 the
/// second one's.
pub(super) struct Machine {
    pub(super) process: &'static Process<Several<Recorder>>,
    pub(super) servers: [&'static Recorder; 2],
}

const REFUSED: Result<()> = Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);

impl Machine {
    /// `list` as of [`Member::list`].
    fn listed(list: &[usize]) -> Machine {
        let second = Recorder::leak_apart(1);
        OTHERS.set(vec![second]);
        LIST.set(list.to_vec());
        let several: &'static Several<Recorder> =
            Box::leak(Box::new(Several::new(Recorder::default())));
        let servers = [several.first(), second];
        for (place, server) in servers.iter().enumerate() {
            prepare(server);
            server.answer_with("vmm_reserve", DevicePtr((place as u64 + 1) << 40));
        }
        Machine { process: Box::leak(Box::new(Process::apart(several))), servers }
    }

    pub(super) fn ready() -> Machine {
        let machine = Machine::listed(&[0, 1]);
        call!(machine, cuInit, 0).expect("both servers have devices");
        machine
    }

    pub(super) fn make_current(&self, device: i32) {
        let context =
            ask!(self, cuDevicePrimaryCtxRetain, device).expect("the recorders open contexts");
        call!(self, cuCtxSetCurrent, context).expect("it was retained");
    }

    /// The methods that each server is asked for by `work`.
    pub(super) fn asked_by(&self, work: impl FnOnce()) -> [Vec<&'static str>; 2] {
        let before = self.servers.map(|server| server.calls().len());
        work();
        let asked = |(server, before): (&&Recorder, usize)| -> Vec<&'static str> {
            server.calls()[before..].iter().map(|call| call.method).collect()
        };
        let mut both = self.servers.iter().zip(before).map(asked);
        [both.next().unwrap_or_default(), both.next().unwrap_or_default()]
    }

    /// It is refused without asking a server, and the log says why.
    pub(super) fn refuses(&self, what: &str, work: impl FnOnce() -> Result<()>) {
        let _ = crate::logs::take_reason();
        let asked = self.asked_by(|| assert_eq!(work(), REFUSED, "{what}"));
        assert_eq!(asked, [Vec::<&str>::new(), Vec::new()], "{what}");
        let reason = crate::logs::take_reason().expect(what);
        assert!(
            reason.contains("servers 1 and 2") || reason.contains("servers 2 and 1"),
            "{what}: {reason}"
        );
    }
}

#[test]
fn devices_of_all_servers_are_listed() {
    let machine = Machine::ready();
    assert_eq!(ask!(machine, cuDeviceGetCount), Ok(4));
    let devices = &machine.process.state.ready().expect("it is").devices;
    let places: Vec<(usize, u32)> =
        devices.iter().map(|device| (device.id.server().place(), device.id.ordinal())).collect();
    assert_eq!(places, [(0, 0), (0, 1), (1, 0), (1, 1)]);
    let reach = |from, to| ask!(machine, cuDeviceCanAccessPeer, from, to);
    assert_eq!([reach(0, 1), reach(2, 3), reach(0, 2), reach(3, 1)], [Ok(1), Ok(1), Ok(0), Ok(0)]);
    assert_eq!(machine.servers.map(|server| server.calls().len()), [2, 2], "attach and platform");
    let asked = machine.asked_by(|| {
        let access = CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
        assert_eq!(ask!(machine, cuDeviceGetP2PAttribute, access, 1, 2), Ok(0));
        assert_eq!(ask!(machine, cuDeviceGetP2PAttribute, access, 2, 3), Ok(0));
    });
    assert_eq!(asked, [vec![], vec!["peer_attribute"]]);
}

#[test]
fn the_list_says_in_which_order() {
    let machine = Machine::listed(&[1, 0, 1]);
    call!(machine, cuInit, 0).expect("both servers have devices");
    let devices = &machine.process.state.ready().expect("it is").devices;
    let places: Vec<(usize, u32)> =
        devices.iter().map(|device| (device.id.server().place(), device.id.ordinal())).collect();
    assert_eq!(places, [(1, 0), (0, 0), (0, 1), (1, 1)]);
}

#[test]
fn a_server_that_fails_is_tried_again_and_the_others_are_not() {
    for failing in 0..2 {
        let machine = Machine::listed(&[0, 1]);
        machine.servers[failing].fail("platform", 1, CUresult::CUDA_ERROR_SYSTEM_NOT_READY);
        assert_eq!(call!(machine, cuInit, 0), Err(CUresult::CUDA_ERROR_SYSTEM_NOT_READY));
        assert_eq!(call!(machine, cuInit, 0), Ok(()));
        assert_eq!(ask!(machine, cuDeviceGetCount), Ok(4));
        // The other one's session is there already.
        let asked = |server: &Recorder| {
            server.calls().iter().filter(|call| call.method == "platform").count()
        };
        assert_eq!((asked(machine.servers[failing]), asked(machine.servers[1 - failing])), (2, 1));
    }
}

/// What a program does on one device.
fn work(machine: &Machine, device: i32) {
    machine.make_current(device);
    let stream = ask!(machine, cuStreamCreate, 0).expect("a context is current");
    let memory = ask!(machine, cuMemAlloc_v2, 4096).expect("a context is current");
    let mut bytes = [1_u8; 64];
    let host = bytes.as_mut_ptr().cast::<c_void>();
    call!(machine, cuMemcpyHtoDAsync_v2, memory, host, 64, stream).expect("nothing fails");
    call!(machine, cuMemcpyDtoHAsync_v2, host, memory, 64, stream).expect("nothing fails");
    call!(machine, cuMemsetD8Async, memory, 1, 64, stream).expect("nothing fails");
    call!(machine, cuStreamSynchronize, stream).expect("nothing fails");
    let pool = ask!(machine, cuDeviceGetDefaultMemPool, device).expect("nothing fails");
    call!(machine, cuMemPoolTrimTo, pool, 0).expect("nothing fails");
    let mut property = property(device);
    let physical =
        ask!(machine, cuMemCreate, 2 << 20, &raw const property, 0).expect("nothing fails");
    property.location.id = device;
    let address = ask!(machine, cuMemAddressReserve, 2 << 20, 0, 0, 0).expect("nothing fails");
    call!(machine, cuMemMap, address, 2 << 20, 0, physical, 0).expect("nothing fails");
    let mut access: CUmemAccessDesc = nothing();
    access.location = property.location;
    access.flags.0 = 3;
    call!(machine, cuMemSetAccess, address, 2 << 20, &raw const access, 1).expect("nothing fails");
    call!(machine, cuMemUnmap, address, 2 << 20).expect("nothing fails");
    call!(machine, cuMemRelease, physical).expect("nothing fails");
    call!(machine, cuMemAddressFree, address, 2 << 20).expect("nothing fails");
    call!(machine, cuMemFree_v2, memory).expect("nothing fails");
    call!(machine, cuStreamDestroy_v2, stream).expect("nothing fails");
    call!(machine, cuDevicePrimaryCtxRelease_v2, device).expect("nothing fails");
}

/// Physical memory of a device.
fn property(device: i32) -> CUmemAllocationProp {
    let mut property: CUmemAllocationProp = nothing();
    property.type_ = outboard_abi::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    property.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    property.location.id = device;
    property
}

#[test]
fn work_goes_to_the_server_of_its_device_alone() {
    let machine = Machine::ready();
    let [first, nothing] = machine.asked_by(|| work(&machine, 1));
    assert!(first.len() > 15 && nothing.is_empty(), "{first:?} {nothing:?}");
    let [nothing, second] = machine.asked_by(|| work(&machine, 3));
    assert_eq!((nothing, second), (Vec::new(), first), "the other server is asked for the same");
    let opened = |server: &Recorder| {
        server.calls().iter().find(|call| call.method == "context_open").map(ToString::to_string)
    };
    let [first, second] = machine.servers.map(|server| opened(server).expect("both have"));
    assert_eq!(first, "context_open(ctx: ContextId(1), device: 1, flags: 0, primary: true)");
    let second_context = 2 + (1 << 26);
    assert_eq!(
        second,
        format!(
            "context_open(ctx: ContextId({second_context}), device: 1 of server 1, flags: 0, primary: true)"
        )
    );
}

#[test]
fn a_server_that_is_lost_takes_its_devices_along_and_no_others() {
    let machine = Machine::ready();
    machine.make_current(0);
    let here = ask!(machine, cuMemAlloc_v2, 64).expect("nothing fails");
    machine.make_current(2);
    let lost = CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE;
    machine.servers[1].fail("memory_alloc", 1, lost);
    assert_eq!(ask!(machine, cuMemAlloc_v2, 64), Err(lost));
    machine.make_current(0);
    assert_eq!(call!(machine, cuMemsetD32_v2, here, 1, 16, DefaultStream::Legacy), Ok(()));
}

/// A stream waits for another server's event; an error is told to whoever waits next.
#[test]
fn a_stream_waits_for_an_event_of_another_server() {
    let machine = Machine::ready();
    let [first, second] = machine.servers.map(Crossed::of);
    machine.make_current(0);
    let event = ask!(machine, cuEventCreate, 0).expect("nothing fails");
    call!(machine, cuEventRecord, event, core::ptr::null_mut()).expect("nothing fails");
    machine.make_current(2);
    let stream = ask!(machine, cuStreamCreate, 0).expect("nothing fails");
    for (outcome, told) in [
        (Ok(()), &["goes on"][..]),
        (Err(CUresult::CUDA_ERROR_UNKNOWN), &["fails with 999", "goes on"]),
    ] {
        let asked = machine.asked_by(|| {
            call!(machine, cuStreamWaitEvent, stream, event, 0).expect("it waits");
        });
        assert_eq!(asked, [Vec::<&str>::new(), Vec::new()], "neither waits for an answer");
        assert_eq!((first.take(1), second.take(1)), (vec!["event".into()], vec!["hold".into()]));
        first.happens(outcome);
        assert_eq!(second.take(told.len()), told);
    }
    let other = ask!(machine, cuEventCreate, 0).expect("nothing fails");
    call!(machine, cuEventRecord, other, stream).expect("nothing fails");
    let apart = ask!(machine, cuEventElapsedTime_v2, event, other).map(drop);
    assert_eq!(apart, Err(CUresult::CUDA_ERROR_INVALID_HANDLE), "they have no clock in common");
}

/// A copy between servers goes through this process, in the order of its stream, which goes on when
/// the bytes are there.
#[test]
fn a_copy_between_servers_waits_for_its_stream() {
    let machine = Machine::ready();
    let [first, second] = machine.servers.map(Crossed::of);
    machine.make_current(0);
    let there = ask!(machine, cuMemAlloc_v2, 32 << 20).expect("nothing fails");
    machine.make_current(2);
    let stream = ask!(machine, cuStreamCreate, 0).expect("nothing fails");
    let here = ask!(machine, cuMemAlloc_v2, 32 << 20).expect("nothing fails");
    // A piece of each is 4 MiB.
    for (bytes, pieces) in [(64, 1), (9 << 20, 3)] {
        let asked = machine.asked_by(|| {
            call!(machine, cuMemcpyDtoDAsync_v2, here, there, bytes, stream).expect("it is queued");
        });
        assert_eq!(asked, [Vec::<&str>::new(), Vec::new()], "nothing is copied yet");
        assert_eq!(
            (first.take(1), second.take(2)),
            (vec!["hold".into()], vec!["stream".into(), "hold".into()])
        );
        let asked = machine.asked_by(|| {
            second.happens(Ok(()));
            assert_eq!(
                (first.take(1), second.take(1)),
                (vec!["goes on".into()], vec!["goes on".into()])
            );
        });
        let stored: Vec<&str> =
            std::iter::repeat_n("copy_box", pieces).chain(["stream_synchronize"]).collect();
        assert_eq!(asked, [vec!["copy_box"; pieces], stored]);
    }
    // A copy that fails is told of, and its stream goes on.
    machine.servers[0].fail("copy_box", 5, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    call!(machine, cuMemcpyDtoDAsync_v2, here, there, 64, stream).expect("it is queued");
    second.happens(Ok(()));
    assert_eq!(second.take(4), ["stream", "hold", "fails with 700", "goes on"]);
    // A synchronous one waits for the work of both devices.
    let asked = machine.asked_by(|| {
        call!(machine, cuMemcpyDtoD_v2, here, there, 64, DefaultStream::Legacy)
            .expect("it is done");
    });
    let (all, synchronize) = ("context_synchronize", "stream_synchronize");
    assert_eq!(
        asked,
        [vec![all, synchronize, "copy_box"], vec![all, synchronize, "copy_box", synchronize]]
    );
}

/// A copy from and to memory of one server, in a stream of another, is the first one's own affair.
#[test]
fn a_copy_within_another_server_is_not_relayed() {
    let machine = Machine::ready();
    machine.make_current(0);
    let [one, other] =
        [(), ()].map(|()| ask!(machine, cuMemAlloc_v2, 4096).expect("nothing fails"));
    machine.make_current(2);
    let asked = machine.asked_by(|| {
        call!(machine, cuMemcpyDtoD_v2, one, other, 64, DefaultStream::Legacy).expect("it is done");
    });
    let synchronize = "stream_synchronize";
    assert_eq!(asked, [vec![synchronize, "copy_box", synchronize], vec![synchronize]]);
}

/// A copy between the host and memory of another server is that server's.
#[test]
fn a_copy_of_memory_of_another_server_waits_for_its_stream() {
    let machine = Machine::ready();
    let [first, second] = machine.servers.map(Crossed::of);
    machine.make_current(0);
    let there = ask!(machine, cuMemAlloc_v2, 4096).expect("nothing fails");
    machine.make_current(2);
    let stream = ask!(machine, cuStreamCreate, 0).expect("nothing fails");
    let mut bytes = [0_u8; 64];
    let own = bytes.as_mut_ptr().cast::<c_void>();
    // Pageable memory is the program's again when the call returns.
    let asked = machine.asked_by(|| {
        call!(machine, cuMemcpyDtoHAsync_v2, own, there, 64, stream).expect("it is done");
        call!(machine, cuMemcpyHtoDAsync_v2, there, own, 64, stream).expect("it is done");
    });
    let synchronize = "stream_synchronize";
    assert_eq!(asked, [vec!["copy_box", "copy_box", synchronize], vec![synchronize; 2]]);
    let pinned = ask!(machine, cuMemHostAlloc, 4096, 0).expect("nothing fails");
    call!(machine, cuMemcpyDtoHAsync_v2, pinned, there, 64, stream).expect("it is queued");
    assert_eq!(
        (first.take(1), second.take(2)),
        (vec!["hold".into()], vec!["stream".into(), "hold".into()])
    );
    let asked = machine.asked_by(|| {
        second.happens(Ok(()));
        assert_eq!(
            (first.take(1), second.take(1)),
            (vec!["goes on".into()], vec!["goes on".into()])
        );
    });
    assert_eq!(asked, [vec!["copy_box"], vec![]]);
}

/// Other operations that involve two servers are refused before either is asked.
#[test]
fn what_crosses_servers_is_refused_by_name() {
    let machine = Machine::ready();
    machine.make_current(0);
    let there = ask!(machine, cuMemAlloc_v2, 4096).expect("nothing fails");
    let pooled =
        ask!(machine, cuMemAllocAsync, 4096, core::ptr::null_mut()).expect("nothing fails");
    let pool = ask!(machine, cuDeviceGetDefaultMemPool, 0).expect("nothing fails");
    let first_property = property(0);
    let physical =
        ask!(machine, cuMemCreate, 2 << 20, &raw const first_property, 0).expect("nothing fails");
    let graph = ask!(machine, cuGraphCreate, 0).expect("nothing fails");
    ask!(machine, cuGraphAddEmptyNode, graph, core::ptr::null(), 0).expect("nothing fails");
    let exec = ask!(machine, cuGraphInstantiateWithFlags, graph, 0).expect("nothing fails");

    machine.make_current(2);
    let stream = ask!(machine, cuStreamCreate, 0).expect("nothing fails");
    let range = ask!(machine, cuMemAddressReserve, 2 << 20, 0, 0, 0).expect("nothing fails");
    machine.refuses("a free in order", || call!(machine, cuMemFreeAsync, pooled, stream));
    machine
        .refuses("a pool", || ask!(machine, cuMemAllocFromPoolAsync, 64, pool, stream).map(drop));
    machine.refuses("a word to wait for", || {
        call!(machine, cuStreamWaitValue32_v2, stream, there, 1, 0)
    });
    machine.refuses("a word to write", || {
        call!(machine, cuStreamWriteValue64_v2, stream, there, 1, 0)
    });
    machine.refuses("a mapping", || call!(machine, cuMemMap, range, 2 << 20, 0, physical, 0));
    // Whichever device is current, an executable is made where its nodes are.
    let made = machine.asked_by(|| {
        let other = ask!(machine, cuGraphInstantiateWithFlags, graph, 0).expect("nothing fails");
        let mut info = nothing();
        call!(machine, cuGraphExecUpdate_v2, other, graph, &raw mut info).expect("nothing fails");
    });
    assert_eq!(made, [vec!["graph_instantiate", "graph_exec_update"], vec![]]);
    // What needs no stream is the owner's own affair, as natively.
    let freed = machine.asked_by(|| {
        call!(machine, cuMemFree_v2, there).expect("its own context frees it");
        call!(machine, cuGraphExecDestroy, exec).expect("it is there");
        call!(machine, cuGraphDestroy, graph).expect("it is there");
        call!(machine, cuMemRelease, physical).expect("it is there");
    });
    assert_eq!(
        freed,
        [vec!["memory_free", "graph_exec_destroy", "graph_destroy", "vmm_release"], vec![]]
    );
}

/// A copy between two devices of a server that waits is ordered with the work of both.
#[test]
fn a_copy_between_devices_waits_for_both() {
    let machine = Machine::ready();
    machine.make_current(1);
    let other = ask!(machine, cuMemAlloc_v2, 4096).expect("nothing fails");
    machine.make_current(0);
    let own = ask!(machine, cuMemAlloc_v2, 4096).expect("nothing fails");
    let copy = |dst, src| {
        let outcome = call!(machine, cuMemcpy, dst, src, 64, DefaultStream::Legacy);
        outcome.expect("nothing fails");
    };
    let [asked, nothing] = machine.asked_by(|| copy(other, own));
    let (before, after) = (["context_synchronize"; 2], ["copy_on_device", "stream_synchronize"]);
    assert_eq!((asked, nothing), ([before, after].concat(), vec![]));
    let [asked, _] = machine.asked_by(|| copy(own + 64, own));
    assert_eq!(asked, ["copy_on_device"], "on one device, later work waits by itself");
}

/// The kernel's server is given what another server's device shares with the program.
#[test]
fn memory_of_the_program_is_every_server_s() {
    let machine = Machine::ready();
    machine.make_current(0);
    let pinned = ask!(machine, cuMemHostAlloc, 4096, 0).expect("nothing fails");
    let plain = ask!(machine, cuMemAlloc_v2, 4096).expect("nothing fails");
    for server in machine.servers {
        server.answer_with("managed_alloc", UnifiedPtr(1 << 44));
    }
    let managed = ask!(machine, cuMemAllocManaged, 4096, 1).expect("nothing fails");
    let second = Crossed::of(machine.servers[1]);
    let _ = second.take(0);
    let none = core::ptr::null_mut();
    let launch = |device, mut parameter: u64| {
        machine.make_current(device);
        let module = ask!(machine, cuModuleLoadData, IMAGE).expect("a context is current");
        let function = ask!(machine, cuModuleGetFunction, module, c"kernel".as_ptr());
        let function = function.expect("there is one");
        let mut parameters = [(&raw mut parameter).cast::<c_void>()];
        let outcome = |params: *mut *mut c_void| {
            let extra = core::ptr::null_mut();
            call!(machine, cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, none, params, extra)
        };
        let mut result = Ok(());
        let asked = machine.asked_by(|| result = outcome(parameters.as_mut_ptr()));
        (result, asked.concat().len())
    };
    for shared in [pinned as u64 + 8, managed] {
        assert_eq!(launch(1, shared), (Ok(()), 1), "another device of its server");
        assert_eq!(second.take(0), Vec::<String>::new());
        assert_eq!(launch(2, shared), (Ok(()), 1));
        assert_eq!(second.take(1), [format!("takes part in {shared:x} of 0")]);
    }
    machine.make_current(2);
    let stream = ask!(machine, cuStreamCreate, 0).expect("nothing fails");
    let address = ask!(machine, cuMemHostGetDevicePointer_v2, pinned, 0).expect("it is given");
    assert_eq!(address, pinned as u64, "it has one address");
    call!(machine, cuStreamWriteValue32_v2, stream, address, 1, 0).expect("it is given");
    assert_eq!(second.take(2), vec![format!("takes part in {address:x} of 0"); 2]);
    // A kernel that does not use an address may be given it, as natively.
    assert_eq!(launch(2, plain), (Ok(()), 1));
    assert_eq!(second.take(0), Vec::<String>::new());
    // A server that cannot have it says so.
    second.has_no_room.store(true, Ordering::Relaxed);
    let _ = crate::logs::take_reason();
    assert_eq!(launch(2, managed), (Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY), 0));
    let reason = crate::logs::take_reason().expect("it is said");
    assert!(reason.contains("the kernel kernel has a parameter"), "{reason}");
    assert!(reason.contains("servers 2 and 1"), "{reason}");
}

#[test]
fn what_nobody_says_the_server_of_is_asked_everywhere() {
    let machine = Machine::ready();
    let unknown = CUresult::CUDA_ERROR_INVALID_VALUE;
    let mut resource: outboard_abi::CUdevResource = nothing();
    let mut describe = || ask!(machine, cuDevResourceGenerateDesc, &raw mut resource, 1).map(drop);
    machine.servers[0].fail("resource_describe", 1, unknown);
    let asked = machine.asked_by(|| assert_eq!(describe(), Ok(())));
    assert_eq!(asked, [["resource_describe"], ["resource_describe"]]);
}

#[test]
fn servers_are_not_told_of_parts() {
    let machine = Machine::ready();
    for server in machine.servers {
        server.answer_with("vmm_divides", true);
    }
    assert!(!machine.process.backend.vmm_divides());
}

//! Has a worker carry out commands on a driver that does nothing, for `cargo xtask counts`, which
//! counts their instructions.
//!
//! `dispatch_cost COMMAND COUNT`

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use outboard_driver::Table;
use outboard_session::client::{CALL, Outgoing};
use outboard_wire::jit::JitOptions;
use outboard_wire::messages as msg;
use outboard_wire::{ContextId, DevicePtr, ObjectId, StreamId};
use outboard_worker::Counted;

/// The client's names.
const CONTEXT: u32 = 1;
const STREAM: u64 = 0x10;
const EVENT: u64 = 0x20;
const MODULE: u64 = 0x30;
const FUNCTION: u64 = 0x40;
/// Commands in one delivery.
const BATCH: u64 = 100;

/// What the driver made last.
static MADE: AtomicU64 = AtomicU64::new(0x10_0000);

extern "C" fn nothing() -> i32 {
    0
}

extern "C" fn invalid() -> i32 {
    1
}

/// Any function whose first argument is where a handle or an address goes.
extern "C" fn make(place: *mut u64) -> i32 {
    // SAFETY: the worker's own variable, of eight bytes.
    unsafe { place.write(MADE.fetch_add(0x10_0000, Ordering::Relaxed)) };
    0
}

fn function(name: &CStr) -> *const c_void {
    const MAKING: [&str; 7] = [
        "cuDevicePrimaryCtxRetain",
        "cuStreamCreateWithPriority",
        "cuEventCreate",
        "cuModuleLoadData",
        "cuModuleLoadDataEx",
        "cuModuleGetFunction",
        "cuMemAlloc_v2",
    ];
    match name.to_str() {
        Ok(name) if MAKING.contains(&name) => make as *const c_void,
        Ok("cuFuncGetParamInfo") => invalid as *const c_void,
        _ => nothing as *const c_void,
    }
}

/// A client's side: commands, encoded.
struct Client {
    outgoing: Outgoing,
    worker: Counted,
}

type Failure = Box<dyn std::error::Error>;

impl Client {
    fn send<M: msg::Message>(&mut self, flags: u16, message: &M) -> Result<(), Failure> {
        self.outgoing.push(M::OP, flags, ContextId(CONTEXT), |writer| message.encode(writer))?;
        Ok(())
    }

    fn deliver(&mut self) -> Result<(), Failure> {
        if let Some(batch) = self.outgoing.take() {
            self.worker.take(batch.bytes())?;
            self.outgoing.done(batch);
        }
        Ok(())
    }

    fn repeat<M: msg::Message>(
        &mut self,
        count: u64,
        flags: u16,
        message: &M,
    ) -> Result<(), Failure> {
        for number in 1..=count {
            self.send(flags, message)?;
            if number % BATCH == 0 || number == count {
                self.deliver()?;
            }
        }
        Ok(())
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (command, count) =
        (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default().parse()?);
    // SAFETY: functions of C that look at no more than their first argument, or at none.
    let table: &'static Table = Box::leak(Box::new(unsafe { Table::load(function) }));
    let worker = Counted::new(table).map_err(|refusal| refusal.sentence)?;
    let mut client = Client { outgoing: Outgoing::new(false), worker };
    client.send(
        CALL,
        &msg::ContextOpen {
            device: outboard_wire::device_id::DeviceId::new(0),
            flags: 0,
            primary: true,
        },
    )?;
    client.send(0, &msg::StreamCreate { stream: ObjectId(STREAM), flags: 1, priority: 0 })?;
    client.send(0, &msg::EventCreate { event: ObjectId(EVENT), flags: 2 })?;
    let image = b".version 7.0\n.target sm_70\n";
    client.send(0, &msg::ImageData { data: image })?;
    let options = JitOptions::default();
    client.send(
        CALL,
        &msg::ModuleLoad { module: ObjectId(MODULE), parts: vec![image.len() as u64], options },
    )?;
    client.send(
        CALL,
        &msg::ModuleFunction {
            module: ObjectId(MODULE),
            name: "kernel",
            function: ObjectId(FUNCTION),
        },
    )?;
    client.deliver()?;
    let dst = MADE.load(Ordering::Relaxed);
    client.send(CALL, &msg::MemoryAlloc { bytes: 4096 })?;
    client.deliver()?;
    let params = [0; 48];
    let launch = msg::Launch {
        function: ObjectId(FUNCTION),
        stream: StreamId(STREAM),
        grid: (1, 1, 1),
        block: (1, 1, 1),
        shared: 0,
        cooperative: false,
        params: &params,
        attributes: Vec::new(),
    };
    let fill = msg::Fill {
        dst: DevicePtr(dst),
        pitch: 4,
        value: 0,
        element: 4,
        width: 1,
        height: 1,
        stream: StreamId(STREAM),
    };
    match command.as_str() {
        "Launch" => client.repeat(count, 0, &launch),
        "EventRecord" => client.repeat(
            count,
            0,
            &msg::EventRecord { event: ObjectId(EVENT), stream: StreamId(STREAM), flags: 0 },
        ),
        "StreamWaitEvent" => client.repeat(
            count,
            0,
            &msg::StreamWaitEvent { stream: StreamId(STREAM), event: ObjectId(EVENT), flags: 0 },
        ),
        "Fill" => client.repeat(count, 0, &fill),
        "CopyIn" => client.repeat(
            count,
            0,
            &msg::CopyIn { dst: DevicePtr(dst), stream: StreamId(STREAM), data: &[0; 64] },
        ),
        "StreamSynchronize" => {
            client.repeat(count, CALL, &msg::StreamSynchronize { stream: StreamId(STREAM) })
        }
        _ => Err(format!("there is no command {command:?}").into()),
    }?;
    if client.worker.failures() > 0 { Err("commands have failed".into()) } else { Ok(()) }
}

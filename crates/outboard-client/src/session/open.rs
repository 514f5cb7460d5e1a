//! The start of a session, or why there is none.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use outboard_abi::CUresult;
use outboard_front::backend::{Faults, Result, ServerId};
use outboard_transport::Any;
use outboard_wire::collectives::CommFailure;
use outboard_wire::handshake::arena;
use outboard_wire::handshake::windows::{Acceptable, WINDOWS};
use outboard_wire::handshake::{
    Extensions, Hello, Local, Purpose, RefusalCode, TRACE, TraceParent, VERSION,
};
use outboard_wire::platform::Platform;
use outboard_wire::window::Window;
use outboard_wire::{Code, Reader, plain, plain_lines};

use super::memory::GivenBack;
use super::notices::{Notices, Pending};
use super::postponed::PostponedFrees;
use super::{ImageCounters, Session};
use crate::arena::Arena;
use crate::copies::late::LateCopies;
use crate::copies::under_way::Copies;
use crate::graphs::GraphHosts;
use crate::host_calls::HostFunctions;
use crate::kernels::KnownKernels;
use crate::link::{Config, ConnectError, Link, NoticeHandler};
use crate::own_settings::SAY_LOST;
use crate::pager::Pager;
use crate::progress::Progress;
use crate::requests::{Answerer, Requests};
use crate::reuse::Reuse;
use crate::speech;
use crate::target::{Target, Targets, VARIABLE};
use crate::times::Times;
use crate::wanted;
use crate::windows::{self, TooFew};

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("{VARIABLE} names no server: {0}")]
    Target(#[from] crate::target::TargetError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the server's description of its devices cannot be read: {0}")]
    Snapshot(#[from] outboard_wire::DecodeError),
    #[error(
        "the server at {0} does not keep its devices' memory to addresses that no other server gives out, which a program with several servers needs: use its devices alone, or leave them out"
    )]
    NoWindow(String),
    #[error(
        "the program's list has {servers} servers, and its address space has room for the memory of {windows}: name fewer, or start several programs"
    )]
    FewWindows { servers: usize, windows: usize },
    /// The client asks again.
    #[error("the session of another server has the addresses that the server gives out")]
    WindowTaken,
    #[error(
        "{first} and {second} are one server, and its device {index} is in the list under both names: leave one of them out"
    )]
    Twice { first: String, second: String, index: u32 },
}

impl From<TooFew> for OpenError {
    fn from(TooFew { servers, windows }: TooFew) -> OpenError {
        OpenError::FewWindows { servers, windows }
    }
}

impl OpenError {
    /// Whether this is a machine like any other without a GPU: the server has none to give, or
    /// there is no server and none is named.
    pub(crate) fn is_no_device(&self) -> bool {
        match self {
            OpenError::Connect(ConnectError::Refused { refusal, .. }) => {
                refusal.code == RefusalCode::NoDevice
            }
            OpenError::Connect(ConnectError::Unreachable { .. }) => {
                std::env::var_os(VARIABLE).is_none()
            }
            _ => false,
        }
    }

    fn code(&self) -> Code {
        match self {
            OpenError::Target(_) | OpenError::Twice { .. } => Code::BadAddress,
            OpenError::Connect(error) => error.code(),
            OpenError::Snapshot(_) => Code::BadSnapshot,
            OpenError::NoWindow(_) | OpenError::FewWindows { .. } | OpenError::WindowTaken => {
                Code::NoWindow
            }
        }
    }
}

impl Session {
    /// Connects to one of the servers that the environment names.
    pub(crate) fn open(
        server: ServerId,
        faults: &'static dyn Faults,
        pager: &'static Pager,
    ) -> Result<(Arc<Session>, Platform)> {
        connect(server, faults, pager).map_err(|error| {
            explain(&error);
            if error.is_no_device() {
                CUresult::CUDA_ERROR_NO_DEVICE
            } else {
                CUresult::CUDA_ERROR_SYSTEM_NOT_READY
            }
        })
    }
}

fn connect(
    server: ServerId,
    faults: &'static dyn Faults,
    pager: &'static Pager,
) -> std::result::Result<(Arc<Session>, Platform), OpenError> {
    let targets = wanted::of_this_process()?;
    let servers = targets.servers().len();
    let offer = windows::offer(server, servers)?;
    match connect_within(&targets, server, offer.as_deref(), faults, pager) {
        Err(OpenError::WindowTaken) => {
            let reserved = windows::reserve(server, servers)?;
            connect_within(&targets, server, reserved.as_deref(), faults, pager)
        }
        connected => connected,
    }
}

/// Connects to a server that may give out the addresses of any of these windows, or any addresses.
fn connect_within(
    targets: &Targets,
    server: ServerId,
    windows: Option<&[Window]>,
    faults: &'static dyn Faults,
    pager: &'static Pager,
) -> std::result::Result<(Arc<Session>, Platform), OpenError> {
    let target = targets.server(server)?;
    let (pending, copies) = (Arc::new(Pending::default()), Arc::new(Copies::default()));
    let (progress, late) = (Arc::new(Progress::default()), Arc::new(LateCopies::default()));
    let functions = Arc::new(HostFunctions::new(Arc::clone(&progress), pager));
    let graphs = Arc::new(GraphHosts::new(Arc::clone(progress.outstanding())));
    let answerers: Vec<Arc<dyn Answerer>> = vec![functions.clone(), late.clone(), graphs.clone()];
    let kernels = Arc::new(KnownKernels::default());
    let (memory_wanted, lost_links) = (Arc::default(), Arc::default());
    let freed_places = Arc::default();
    let config = Config::of_server(target);
    let requests = Requests::new(Arc::clone(&copies), answerers);
    let told = Notices {
        pending: Arc::clone(&pending),
        fault: Box::new(|ctx, error| faults.fault(ctx, error)),
        comm_failed: Box::new(|failure: &CommFailure| {
            faults.communicator_failed(failure.comm, failure.result, &plain(&failure.sentence));
        }),
        copies: Arc::clone(&copies),
        requests: Arc::clone(&requests),
        kernels: Arc::clone(&kernels),
        memory_wanted: Arc::clone(&memory_wanted),
        lost_links: Arc::clone(&lost_links),
        freed_places: Arc::clone(&freed_places),
    };
    let notices = Box::new(move |code: u16, payload: &[u8]| told.take(code, payload));
    let Opened { link, platform, window, arena, local } =
        open_link(target, config, notices, windows, |devices| Purpose::Session { devices })?;
    if targets.servers().len() > 1 {
        let window = window.ok_or_else(|| OpenError::NoWindow(target.address.to_string()))?;
        if !windows::take(server, window) {
            return Err(OpenError::WindowTaken);
        }
    }
    requests.connect(link.answers());
    let device = platform.devices.first().map_or_else(String::new, |device| device.name.clone());
    let images = ImageCounters::default();
    let (upload, reuse, started) = (Default::default(), Reuse::default(), Instant::now());
    let session = Session {
        link,
        pending,
        copies,
        requests,
        functions,
        late,
        holds: Arc::default(),
        postponed: PostponedFrees::default(),
        given_back: GivenBack::default(),
        has_copied_over_links: AtomicBool::new(false),
        lost_links,
        freed_places,
        graphs,
        graphs_expected: OnceLock::new(),
        upload,
        progress,
        times: Times::default(),
        reuse,
        images,
        kernels,
        device,
        server: target.address.to_string(),
        local,
        window,
        arena: arena.map(|terms| Arena::new(terms, memory_wanted)),
        devices: platform.devices.len(),
        started,
    };
    let session = Arc::new(session);
    session.watch_what_is_kept();
    Ok((session, platform))
}

/// A connection, and what the server has said of itself.
pub(crate) struct Opened {
    pub(crate) link: Link,
    pub(crate) platform: Platform,
    /// The session's, one of those that were acceptable.
    pub(crate) window: Option<Window>,
    /// The part of it that this process cuts.
    pub(crate) arena: Option<arena::Arena>,
    /// Where clients on its machine find it: no two servers are found in one place.
    pub(crate) local: Option<Local>,
}

/// Connects to a server, for a purpose with the devices that are wanted of it.
pub(crate) fn open_link(
    target: &Target,
    config: Config,
    notices: NoticeHandler,
    windows: Option<&[Window]>,
    purpose: impl FnOnce(Vec<u32>) -> Purpose,
) -> std::result::Result<Opened, OpenError> {
    let hello = Hello {
        version: VERSION,
        software: env!("CARGO_PKG_VERSION").to_owned(),
        client: client_name(),
        purpose: purpose(target.devices.clone()),
        process: crate::process::this(),
        more: more(windows),
    };
    let address = target.address.to_string();
    let (link, welcome) = Link::connect(&Any, &address, &hello, config, notices)?;
    let mut reader = Reader::new(&welcome.snapshot);
    let platform: Platform = reader.get()?;
    reader.finish()?;
    let window = windows::granted(&welcome, windows, &address)?;
    let arena = windows::arena(&welcome, window, &address)?;
    Ok(Opened { link, platform, window, arena, local: welcome.local })
}

/// The variable of a process that is part of a trace.
const TRACE_VARIABLE: &str = "TRACEPARENT";

/// What is said besides.
fn more(windows: Option<&[Window]>) -> Extensions {
    let mut more = Extensions::default();
    if let Some(windows) = windows {
        more.set(WINDOWS, &Acceptable(windows.to_vec()));
    }
    let parent = std::env::var(TRACE_VARIABLE).ok();
    if let Some(parent) = parent.as_deref().and_then(TraceParent::parse) {
        more.set(TRACE, &parent);
    }
    more
}

/// The name of the client, for the server's log.
fn client_name() -> String {
    let program = std::env::current_exe().ok();
    let name = program
        .as_deref()
        .and_then(|path| path.file_name())
        .map(|name| name.to_string_lossy().into_owned());
    format!("{} ({})", name.unwrap_or_default(), std::process::id())
}

/// A CUDA program expects no output from its driver; `OUTBOARD_LOG` turns it on, and of ranks
/// without a device `outboard run` has it speak.
pub(crate) fn explain(error: &OpenError) {
    let is_heard = matches!(error, OpenError::Target(error) if error.is_about_a_rank())
        && std::env::var_os(SAY_LOST).is_some();
    once(&error.to_string(), |sentence| {
        if is_heard { say_aloud(error.code(), sentence) } else { say(error.code(), sentence) }
    });
}

/// `CUDA_VISIBLE_DEVICES` leaves none of so many devices.
pub(crate) fn explain_hidden(devices: usize) {
    let value = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let these =
        if devices == 1 { "the one device".to_owned() } else { format!("all {devices} devices") };
    let sentence = format!(
        "CUDA_VISIBLE_DEVICES is `{value}`, which hides {these} of the session from this program; indices count from 0 among these"
    );
    once(&sentence, |sentence| say(Code::NoDevice, sentence));
}

/// Has nothing said that was the last thing to be said: programs start the driver again and again.
fn once(sentence: &str, say: impl FnOnce(&str)) {
    static LAST: Mutex<String> = Mutex::new(String::new());
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if *last != sentence {
        say(sentence);
        sentence.clone_into(&mut last);
    }
}

fn say_aloud(code: Code, sentence: &str) {
    outboard_threads::say(code.end(&plain_lines(sentence)));
}

pub(super) fn say(code: Code, sentence: &str) {
    speech::say(code.end(&plain_lines(sentence)));
}

//! Asks a server for its offer, and explains a failure.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use outboard_client::link::{
    Config, ConnectError, Opened, Turn, ask_about_transport, check_transport, open, unreachable,
};
use outboard_client::target::{Target, TargetError, Targets, VARIABLE};
use outboard_transport::{Any, Transport};
use outboard_wire::Code;
use outboard_wire::codec::decode_all;
use outboard_wire::handshake::sharing::{RESERVE, Reserve};
use outboard_wire::handshake::who::{WHO, Who, You};
use outboard_wire::handshake::{
    Extensions, HandshakeError, Hello, Local, Process, Purpose, RefusalCode, VERSION, Version,
    Waiting,
};
use outboard_wire::platform::Platform;

use crate::at_once::at_once;
use crate::config;
use crate::failure::Failure;

/// How long a server may take to answer; its worker loads a driver before it does.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a server offers.
#[derive(Debug)]
pub(crate) struct Offer {
    /// The server's release.
    pub(crate) software: String,
    /// The protocol's version that it speaks.
    pub(crate) protocol: Version,
    /// Over which transport it was reached.
    pub(crate) transport: &'static str,
    /// Whether the connection is encrypted.
    pub(crate) encrypted: bool,
    /// The socket for clients on its machine.
    pub(crate) local: Option<Local>,
    /// Its driver and devices.
    pub(crate) platform: Platform,
}

/// The servers to use: those given, else those that the environment names, else this machine.
pub(crate) fn servers(given: Option<Targets>) -> Result<Targets, Failure> {
    given.map_or_else(Targets::from_env, Ok).map_err(Failure::from)
}

/// As [`servers`], where there must be one.
pub(crate) fn server(given: Option<Target>) -> Result<Target, Failure> {
    given.map_or_else(|| Targets::from_env()?.one(), Ok).map_err(Failure::from)
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Failure {
        let help = "`outboard config show` says where it was set; write HOST[:PORT][/INDEX],…, unix:PATH or @FILE";
        Failure::new(
            Code::BadAddress,
            format!("{VARIABLE} names no server that can be used: {error}"),
            help,
        )
    }
}

/// A server and how to reach it.
pub(crate) struct Server {
    pub(crate) target: Target,
    pub(crate) config: Config,
}

impl Server {
    /// One that is reached as the environment says.
    fn of(target: &Target) -> Server {
        Server { target: target.clone(), config: Config::of_server(target) }
    }
}

/// Connects to the target's server, asks for its devices and checks that those wanted are there.
pub(crate) fn probe(target: &Target) -> Result<Offer, Failure> {
    ask(&Server::of(target), Extensions::default(), None)
}

/// As [`probe`], and has the server keep a place for the program that is about to start. If there
/// is none yet, waits for its turn, no longer than `patience`, and says so.
fn reserve(server: &Server, patience: Option<Duration>) -> Result<(), Failure> {
    let mut more = Extensions::default();
    more.set(RESERVE, &Reserve { devices: server.target.devices.clone() });
    ask(server, more, patience).map(drop)
}

/// Has each of the servers keep a place for the program that is about to start; fails with the
/// first that does not.
pub(crate) fn reserve_all(targets: &[Target], patience: Option<Duration>) -> Result<(), Failure> {
    let servers: Vec<Server> = targets.iter().map(Server::of).collect();
    reserve_each(&servers, patience).into_iter().collect()
}

/// Has each of the servers keep a place, all at once: what came of it, in their order. If all can
/// be reached, those that have no place yet are waited for one after the other.
pub(crate) fn reserve_each(
    servers: &[Server],
    patience: Option<Duration>,
) -> Vec<Result<(), Failure>> {
    if let [server] = servers {
        return vec![reserve(server, patience)];
    }
    let without_waiting = Some(Duration::ZERO);
    let is_queued = |outcome: &Result<(), Failure>| {
        outcome.as_ref().err().is_none_or(|failure| failure.code() == Code::InQueue)
    };
    let outcomes = at_once(servers, |server| reserve(server, without_waiting));
    if patience == without_waiting || !outcomes.iter().all(is_queued) {
        return outcomes;
    }
    let wait = |(server, outcome): (&Server, Result<(), Failure>)| {
        outcome.or_else(|_| reserve(server, patience))
    };
    servers.iter().zip(outcomes).map(wait).collect()
}

/// Asks the target's server who this client is; `None` from a server of a release that does not
/// tell.
pub(crate) fn who(target: &Target) -> Result<Option<You>, Failure> {
    let mut more = Extensions::default();
    more.set(WHO, &Who);
    let Opened { welcome, .. } = welcomed(&Server::of(target), more, None)?;
    // What cannot be read is as good as not told.
    Ok(welcome.more.get(WHO).ok().flatten())
}

/// Connects to a server, and has it answer a probe with this in its hello.
fn welcomed(
    Server { target, config }: &Server,
    mut more: Extensions,
    patience: Option<Duration>,
) -> Result<Opened, Failure> {
    let address = target.address.to_string();
    let mut silence = Some(Patient::new(&address));
    let mut last = None;
    let mut waits = |waiting: &Waiting| {
        // It has answered.
        silence = None;
        if last.as_ref() != Some(waiting) {
            eprintln!("outboard: place {} in the queue: {}", waiting.place, waiting.sentence);
            last = Some(waiting.clone());
        }
    };
    ask_about_transport(&mut more, config);
    let hello = Hello {
        version: VERSION,
        software: env!("CARGO_PKG_VERSION").to_owned(),
        client: format!("outboard, process {}", std::process::id()),
        purpose: Purpose::Probe,
        process: Process::default(),
        more,
    };
    crate::credentials::warn_of_open_files_of([&config.security]);
    let deadline = Instant::now() + PATIENCE;
    let stream =
        Any.connect(&address, PATIENCE).map_err(|error| no_connection(&address, &error))?;
    let turn = Turn { patience, waits: &mut waits };
    let opened = open(stream, &address, &hello, &config.security, deadline, turn);
    opened.map_err(|error| explain(&address, &error))
}

fn ask(server: &Server, more: Extensions, patience: Option<Duration>) -> Result<Offer, Failure> {
    let Opened { stream, welcome, encrypted, .. } = welcomed(server, more, patience)?;
    let Server { target, config } = server;
    let address = target.address.to_string();
    check_transport(&address, &welcome, config).map_err(|error| explain(&address, &error))?;
    let platform: Platform = decode_all(&welcome.snapshot).map_err(|error| {
        Failure::new(
            Code::BadSnapshot,
            format!("the server at {address} describes its devices in a way this program does not understand: {error}"),
            format!("install the same release here and there; the server runs {}", welcome.software),
        )
    })?;
    if platform.devices.is_empty() {
        return Err(no_device(&address));
    }
    if let Some(index) =
        target.devices.iter().find(|index| **index as usize >= platform.devices.len())
    {
        return Err(Failure::new(
            Code::NoDevice,
            format!(
                "the server at {address} has no device {index}; it offers {}",
                count(platform.devices.len())
            ),
            "`outboard devices` lists them with their indices, which count from 0",
        ));
    }
    Ok(Offer {
        software: welcome.software,
        protocol: welcome.version,
        transport: stream.transport(),
        encrypted,
        local: welcome.local,
        platform,
    })
}

/// How long the command waits without saying so.
const SILENCE: Duration = Duration::from_secs(1);

/// Prints for which server it waits if that takes longer than a moment; until it is dropped.
struct Patient(Option<Sender<()>>);

impl Patient {
    fn new(address: &str) -> Patient {
        let (done, waits) = channel::<()>();
        let address = address.to_owned();
        // Without the thread nothing is said.
        let _ = std::thread::Builder::new().spawn(move || {
            if waits.recv_timeout(SILENCE) == Err(RecvTimeoutError::Timeout) {
                eprintln!(
                    "outboard: waiting for {address} to answer, for {} seconds at most",
                    PATIENCE.as_secs()
                );
            }
        });
        Patient(Some(done))
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        self.0 = None;
    }
}

fn count(devices: usize) -> String {
    if devices == 1 { "one device".to_owned() } else { format!("{devices} devices") }
}

fn no_device(address: &str) -> Failure {
    Failure::new(
        Code::NoDevice,
        format!("the server at {address} has no device to offer"),
        WITHOUT_DEVICE,
    )
}

const WITHOUT_DEVICE: &str =
    "check the NVIDIA driver there with nvidia-smi, or start it with `outboard serve --driver cpu`";

/// No connection came about.
pub(crate) fn no_connection(address: &str, error: &std::io::Error) -> Failure {
    let code = unreachable(address, error);
    let (message, help) = match code {
        Code::NothingListens if !config::is_server_named() => (
            format!("no server is configured, and nothing listens at {address}"),
            "name one with --server HOST; keep one by `outboard login`; or use the software device in the program's process: `outboard run --local-cpu`",
        ),
        Code::NothingListens => (
            format!("nothing listens at {address}"),
            "start a server there with `outboard serve`, or check the port",
        ),
        Code::NoSocket => (
            format!("there is no socket {address}"),
            "start a server on this machine with `outboard serve`, whose log names its socket; a container must have its folder mounted",
        ),
        Code::SocketDenied => (
            format!("this user may not connect to {address}"),
            "ask for `outboard serve --socket-access group` or `all`, or name the server by HOST:PORT",
        ),
        Code::NoAnswer => (
            format!("{address} does not answer"),
            "check the address, that the machine is up, and that no firewall drops the connection",
        ),
        Code::UnknownHost => (
            format!("{address} has no address: {error}"),
            "check the spelling, and that this machine's name service knows it: `getent hosts NAME`",
        ),
        _ => (format!("cannot reach {address}: {error}"), "check the host name and the network"),
    };
    Failure::new(code, message, help)
}

/// A connection came about, but no welcome.
pub(crate) fn explain(address: &str, error: &ConnectError) -> Failure {
    let code = error.code();
    let (check_port, add_login);
    let mut message = error.to_string();
    let help = match error {
        ConnectError::Refused { refusal, .. } => match refusal.code {
            RefusalCode::NoDevice => {
                "`outboard devices` lists what there is; if that is nothing, check the NVIDIA driver there with nvidia-smi, or start it with `outboard serve --driver cpu`"
            }
            RefusalCode::ClientTooOld => "install a newer Outboard on this machine",
            RefusalCode::ServerTooOld => "install a newer Outboard on the server",
            RefusalCode::NotAllowed => "name the server by HOST:PORT",
            RefusalCode::Busy => "try again later, or use another server",
            RefusalCode::OverLimit => {
                "wait for one of your sessions to end, or ask who runs the server for more"
            }
            RefusalCode::NotAuthenticated => {
                "`outboard token create` on the server's machine makes a token and prints a string for `outboard login` here"
            }
            RefusalCode::Stopping => "start the server again, or use another one",
            _ => "the server's log says more",
        },
        ConnectError::RefusedInTheClear { .. } => {
            "nothing of this was believed; if it stays so, ask who runs the server, by another way, whether the server says it"
        }
        ConnectError::Handshake { error: HandshakeError::NotOutboard, .. }
        | ConnectError::BrokenOff { .. } => {
            check_port =
                format!("check the port: is it `outboard serve` that listens at {address}?");
            &check_port
        }
        ConnectError::Queued { .. } => {
            "wait longer (OUTBOARD_QUEUE_TIMEOUT, in seconds), or use another server"
        }
        ConnectError::NothingToTrust { .. }
        | ConnectError::TokenInTheClear { .. }
        | ConnectError::LeaseInTheClear { .. }
        | ConnectError::NotEncrypted { .. } => {
            "`outboard token create` on the server's machine prints a string for `outboard login` here; `outboard docs security` has all ways"
        }
        ConnectError::NoLogin { of, .. } => {
            let place = config::login_place().map_or(String::new(), |place| format!(", {place}"));
            message =
                format!("you have {}{place}", error.to_string().trim_start_matches("there is "));
            add_login = format!(
                "give `outboard login` the string that the operator of {address} prints by `outboard token create`: it is kept beside that of {of}"
            );
            &add_login
        }
        ConnectError::NotTrusted { .. } => {
            "`outboard token fingerprint` on the server's machine prints the right one; if it is the one that you have, do not go on: somebody \
             else answers"
        }
        ConnectError::Security(_) => "check what the variable names",
        ConnectError::Handshake { .. } => "install the same release here and there",
        ConnectError::Transport { .. } => "unset OUTBOARD_TRANSPORT, or use another server",
        ConnectError::Memory { .. } => {
            "raise the limit (`ulimit -a` shows all), or name the server by HOST:PORT, which needs no shared memory"
        }
        ConnectError::Address(_) | ConnectError::Unreachable { .. } | ConnectError::Local(_) => {
            "check the host name and the network"
        }
    };
    Failure::new(code, message, help)
}

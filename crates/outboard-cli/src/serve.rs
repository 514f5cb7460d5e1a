//! `outboard serve` and the worker processes it starts.

pub(crate) mod auth;
mod collectives;
mod compute_cache;
mod confinement;
mod files;
pub(crate) mod ivshmem;
mod job;
mod observe;
mod one_time;
mod over_ssh;
pub(crate) mod peers;
mod pool;
pub(crate) mod rdma;
mod resume;
mod sharing;
mod standing;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use miette::{IntoDiagnostic, Result};
use outboard_supervisor::auth::AuthError;
use outboard_supervisor::logs;
use outboard_supervisor::metrics::MetricsError;
use outboard_supervisor::vsock::Place;
use outboard_supervisor::warm::Bounds;
use outboard_supervisor::{Access, Config, ServeError, Socket, WorkerCommand};
use outboard_transport::DEFAULT_PORT;
use outboard_wire::Code;
use outboard_worker::sandbox::{Calls, Mode, Sandbox, User};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::driver::Choice;
use crate::failure::Failure;
use crate::time;

const MOST_LANES: i64 = outboard_wire::limits::MAX_LANES as i64;

#[derive(clap::Args)]
// Groups are named after their structs, and each part's struct is `Args`.
#[group(skip)]
pub(crate) struct Args {
    /// The driver library: `nvidia`, `cpu` for the software device, or a path. Without it NVIDIA's,
    /// or the software device where there is no NVIDIA GPU; one that cannot be used is an error.
    #[arg(long, value_name = "nvidia|cpu|PATH")]
    pub(crate) driver: Option<Choice>,
    /// The NVML library that answers for the devices; without it the one beside the driver library,
    /// or the loader's libnvidia-ml.so.1.
    #[arg(long, value_name = "PATH")]
    nvml: Option<PathBuf>,
    /// The address to listen at, ADDRESS[:PORT]. Port 0 takes a free one, which the log names;
    /// `none` leaves the Unix socket alone, for clients on this machine.
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDR")]
    pub(crate) listen: String,
    /// The Unix socket over which clients on this machine share memory with the server; `none` for
    /// none. Without it PORT.sock in the folder outboard of $XDG_RUNTIME_DIR or /run.
    #[arg(long, value_name = "PATH|none")]
    pub(crate) socket: Option<PathBuf>,
    /// Where clients in virtual machines connect, by vsock: `any` takes those of this host, and
    /// also this machine's own where the kernel has vsock's loopback; `local` takes only these;
    /// /PATH is where a hypervisor (Firecracker, Cloud Hypervisor, vhost-user-vsock) has the socket
    /// of its machine. Can be given several times.
    #[arg(long, value_name = "any[:PORT]|local[:PORT]|CID[:PORT]|/PATH[:PORT]")]
    pub(crate) vsock: Vec<Place>,
    /// Which users may connect to the Unix sockets: the server's own user and root, its group too,
    /// or every user of the machine.
    #[arg(long, default_value = "owner", value_name = "owner|group|all")]
    socket_access: SocketAccess,
    /// How many workers wait for clients with the driver started and a context made, which saves a
    /// client most of its start-up: a number, or a range, within which as many wait as clients came
    /// at once. `auto` is one and as many as the machine has processors (16 at most, one for each 4
    /// GiB of its memory, and their contexts a sixteenth of each device). Each holds some memory of
    /// its device: about 530 MB on an H200.
    #[arg(long, default_value = "auto", value_name = "N|N-N|auto")]
    pub(crate) warm: Bounds,
    /// How many seconds a worker above the range's lower end waits until as many clients come at
    /// once again.
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = seconds())]
    warm_for: u64,
    /// The devices on which waiting workers hold a context, by index, or `none`. A session that
    /// does not use one gives it back.
    #[arg(long, default_value = "0", value_name = "INDEX,…|none")]
    warm_devices: Indices,
    /// The folder in which the server keeps images (the code that clients load), so that no later
    /// client needs to send them again; `off` keeps none. Without it, `outboard/images` in the
    /// user's folder for caches.
    #[arg(long, value_name = "DIR|off")]
    pub(crate) image_cache: Option<PathBuf>,
    /// The most bytes of disk for the kept images of each owner; the least recently used ones are
    /// removed. K, M, G and T stand for powers of 1024.
    #[arg(long, default_value = "8G", value_name = "BYTES", value_parser = crate::images::bytes)]
    pub(crate) image_cache_limit: u64,
    /// The folder of the client library that the server hands out to clients of other releases,
    /// with its signed manifest (`outboard library sign`); `off` hands out none. Without it that of
    /// this installation, if it is signed.
    #[arg(long, value_name = "DIR|off")]
    client_library: Option<PathBuf>,
    /// The most connections that a client opens for large copies, 1 to 16. It begins with four, and
    /// opens twice as many as long as that makes copies faster. Without it half as many as the
    /// machine has processors, but at least 8.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_LANES))]
    lanes: Option<u32>,
    #[command(flatten)]
    observe: observe::ObserveArgs,
    /// The format of the log on standard error. OUTBOARD_LOG chooses its contents.
    #[arg(long, default_value = "text", value_name = "text|json")]
    log_format: LogFormat,
    #[command(flatten)]
    compute_cache: compute_cache::Args,
    #[command(flatten)]
    pub(crate) confinement: confinement::Args,
    #[command(flatten)]
    pub(crate) auth: auth::Args,
    #[command(flatten)]
    standing: standing::Args,
    #[command(flatten)]
    sharing: sharing::Args,
    #[command(flatten)]
    pool: pool::Args,
    #[command(flatten)]
    peers: peers::Args,
    #[command(flatten)]
    pub(crate) rdma: rdma::Args,
    #[command(flatten)]
    pub(crate) ivshmem: ivshmem::Args,
    #[command(flatten)]
    files: files::Args,
    #[command(flatten)]
    collectives: collectives::Args,
    #[command(flatten)]
    resume: resume::Args,
    #[command(flatten)]
    job: job::Args,
    /// This server is a program's own: it ends once its standard input does, and removes the folder
    /// of its socket.
    #[arg(long = crate::local::FLAG, hide = true)]
    private: bool,
    /// This server was started over ssh: it says on its standard output where it is, and ends once
    /// its standard input does.
    #[arg(long, hide = true)]
    over_ssh: bool,
}

impl Args {
    /// How the server knows its clients.
    pub(crate) fn auth_settings(&self) -> outboard_supervisor::auth::Config {
        outboard_supervisor::auth::Config { leases: self.pool.is_set(), ..self.auth.settings() }
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl LogFormat {
    /// As logs know it.
    pub(crate) fn of_logs(self) -> logs::Format {
        match self {
            LogFormat::Text => logs::Format::Text,
            LogFormat::Json => logs::Format::Json,
        }
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum SocketAccess {
    Owner,
    Group,
    All,
}

/// Indices of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Indices(Vec<u32>);

impl std::str::FromStr for Indices {
    type Err = String;

    fn from_str(text: &str) -> Result<Indices, String> {
        if text == "none" {
            return Ok(Indices(Vec::new()));
        }
        let index = |text: &str| {
            text.trim().parse().map_err(|_| format!("`{text}` is not the index of a device"))
        };
        text.split(',').map(index).collect::<Result<_, _>>().map(Indices)
    }
}

#[derive(clap::Args)]
pub(crate) struct WorkerArgs {
    /// The driver library.
    #[arg(long)]
    driver: PathBuf,
    /// The NVML library.
    #[arg(long)]
    nvml: Option<PathBuf>,
    /// The NCCL library.
    #[arg(long)]
    nccl: Option<PathBuf>,
    /// Whether it may use RDMA adapters.
    #[arg(long)]
    adapters: bool,
    /// The folder of kept images.
    #[arg(long)]
    image_cache: Option<PathBuf>,
    /// The most bytes that they may take.
    #[arg(long, default_value_t = 0)]
    image_cache_limit: u64,
    /// How the worker is confined.
    #[arg(long)]
    sandbox: Mode,
    /// Which system calls it may make.
    #[arg(long)]
    sandbox_calls: Calls,
    /// The user and groups it runs as, by numbers.
    #[arg(long)]
    user: Option<User>,
}

pub(crate) fn serve(args: Args) -> Result<()> {
    bear_limits_of_files();
    let format = args.log_format.of_logs();
    let auth = args.auth_settings();
    logs::init(format);
    // From here on it reads keys and tokens. Workers are programs of their own, and as they were.
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "a crash of this server could leave its keys in a core file");
    }
    let driver = crate::driver::choose(args.driver)?;
    let confinement = args.confinement.settle()?;
    let mut arguments = vec![OsString::from("worker"), "--driver".into(), driver.clone().into()];
    arguments.extend(confinement.arguments());
    if let Some(nvml) = args.nvml {
        arguments.extend([OsString::from("--nvml"), nvml.into()]);
    }
    if let Some(nccl) = args.collectives.library()? {
        arguments.extend([OsString::from("--nccl"), nccl.into()]);
    }
    if args.rdma.is_on() {
        arguments.push("--adapters".into());
    }
    let images = match &args.image_cache {
        Some(off) if off == "off" => None,
        given if confinement.has_user() => confinement.cache("images", given.as_deref()),
        given => crate::images::folder(given.clone()),
    };
    if let Some(folder) = images {
        let limit = args.image_cache_limit.to_string();
        arguments.extend([OsString::from("--image-cache"), folder.into()]);
        arguments.extend([OsString::from("--image-cache-limit"), limit.into()]);
    }
    let mut worker = WorkerCommand::this_program(arguments);
    worker.cgroup = confinement.cgroup();
    let listen = args.job.listen(args.listen)?;
    let listen = if listen == "none" { listen } else { with_port(&listen) };
    let mut config = Config::new(listen, worker);
    config.driver = crate::driver::shown(&driver);
    config.record_calls = confinement.records_calls();
    config.log_format = format;
    config.socket = match args.socket {
        None => Socket::Usual,
        Some(path) if path.as_os_str() == "none" => Socket::Off,
        Some(path) => Socket::At(path),
    };
    config.guests = args.vsock;
    config.access = match args.socket_access {
        SocketAccess::Owner => Access::Owner,
        SocketAccess::Group => Access::Group,
        SocketAccess::All => Access::All,
    };
    config.auth = auth;
    config.library = handed_out(args.client_library)?;
    args.observe.apply(&mut config);
    config.warm = args.warm;
    config.warm_for = Duration::from_secs(args.warm_for);
    config.warm_contexts = args.warm_devices.0;
    args.pool.apply(&mut config);
    args.standing.apply(&mut config);
    args.sharing.apply(&mut config, Path::new(&driver));
    args.compute_cache.apply(&mut config, &confinement);
    args.resume.apply(&mut config);
    config.lanes = args.lanes.unwrap_or(config.lanes);
    args.peers.apply(&mut config);
    args.rdma.apply(&mut config);
    args.ivshmem.apply(&mut config)?;
    args.collectives.apply(&mut config);
    args.files.apply(&mut config)?;
    if args.standing.only_checks() {
        outboard_supervisor::could_serve(&config).map_err(|error| cannot_serve(&error))?;
        if std::env::var_os(outboard_supervisor::LISTENS_AT).is_some() {
            crate::output::print(&format!("{}\n", outboard_supervisor::INHERITS))?;
        }
        return Ok(());
    }
    let socket = match &config.socket {
        Socket::At(path) if args.private => Some(path.clone()),
        _ => None,
    };
    if args.private {
        crate::local::attach(&mut config).into_diagnostic()?;
    }
    let _over_ssh = args.over_ssh.then(|| over_ssh::attach(&mut config)).transpose()?;
    let rendezvous = args.job.apply(&mut config)?;
    let served = outboard_supervisor::serve(config).map_err(|error| cannot_serve(&error).into());
    crate::local::clean_up(socket.as_deref());
    let met = rendezvous.map_or(Ok(()), job::Rendezvous::end);
    served.and(met.map_err(Into::into))
}

/// The folder of the client library that is handed out: the one named, or this installation's if it
/// is signed.
fn handed_out(named: Option<PathBuf>) -> Result<Option<PathBuf>> {
    let is_signed = |folder: &PathBuf| folder.join(outboard_signed::SIGNATURES).is_file();
    match named {
        Some(off) if off == Path::new("off") => Ok(None),
        Some(folder) if is_signed(&folder) => {
            std::path::absolute(folder).map(Some).into_diagnostic()
        }
        Some(folder) => {
            let sentence = format!("{} has no signed client library", folder.display());
            let help = "`outboard library sign --key FILE FOLDER` signs one";
            Err(Failure::new(Code::FileUnusable, sentence, help).into())
        }
        None => Ok(crate::install::client_dir().ok().filter(is_signed)),
    }
}

fn cannot_serve(error: &ServeError) -> Failure {
    let help = match error {
        ServeError::Listen { address, .. } if address.starts_with("vsock:") => {
            "on a host, `modprobe vhost_vsock` lets virtual machines connect; in one, its host has to give it a vsock device; `outboard doctor serve` \
             looks at both"
        }
        ServeError::Listen { .. } => {
            "another program may have the port (`ss -ltnp` shows which): choose one with --listen ADDRESS:PORT"
        }
        ServeError::Metrics(MetricsError::Public(_)) => {
            "use `--metrics PORT`, which listens on loopback, or say --metrics-public"
        }
        ServeError::Metrics(_) => {
            "choose another address with --metrics ADDRESS:PORT (`ss -ltnp` shows who has which port)"
        }
        ServeError::Auth(AuthError::OpenToGuests) => {
            "make a token: `outboard token create --owner NAME`; or, if everybody in these virtual machines may use the GPU, say --allow-anonymous"
        }
        ServeError::Auth(AuthError::Open { .. }) => {
            "make a token: `outboard token create --owner NAME`; or name who signs clients' certificates: --client-ca FILE; or, if everybody on this \
             network may use the GPU, say --allow-anonymous"
        }
        ServeError::Auth(AuthError::Half { .. }) => {
            "set both, on the command line, by variables or in the file; or neither"
        }
        ServeError::Auth(_) => {
            "check the path, whose it is and what others may do to it; --state DIR names another folder"
        }
        ServeError::Pool(_) => {
            "the pool's broker says its public key, and --pool-name is the name in its leases; `outboard docs security` has an example"
        }
        ServeError::OtherRecords { .. } => {
            "leave --records as it was, or stop the server and start it again, which ends its sessions"
        }
        _ => {
            "check the limits on processes and open files (`ulimit -a`); `outboard doctor serve` looks at all of them"
        }
    };
    Failure::new(error.code(), error.to_string(), help)
}

/// A file that may not grow (`ulimit -f`) is an error of whoever writes to it, and not the end of
/// the server or of a worker, which inherits this.
fn bear_limits_of_files() {
    // SAFETY: no function is to be called.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

pub(crate) fn worker(args: &WorkerArgs) -> ! {
    logs::init_from_env();
    let images = args.image_cache.as_deref().map(|folder| (folder, args.image_cache_limit));
    let libraries = crate::driver::Beside {
        nvml: args.nvml.as_deref(),
        nccl: args.nccl.as_deref(),
        adapters: args.adapters,
    };
    let confined =
        |sandbox: Sandbox| sandbox.with_calls(args.sandbox_calls).of_user(args.user.clone());
    crate::driver::work(&args.driver, &libraries, images, args.sandbox, confined)
}

pub(crate) fn check_driver() -> Result<()> {
    std::io::stdout().write_all(crate::driver::check().as_bytes()).into_diagnostic()
}

/// Times that people set. A hundred years are enough, and no clock overflows.
pub(crate) fn seconds() -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    time::seconds_between(0, MOST_SECONDS)
}

const MOST_SECONDS: u64 = 100 * 366 * 24 * 60 * 60;

/// Adds the usual port to an address that has none.
pub(crate) fn with_port(address: &str) -> String {
    with_port_or(address, DEFAULT_PORT)
}

/// Without an address, this machine is meant.
const LOOPBACK: &str = "127.0.0.1";

/// Adds a port to an address that has none, and an address to a port.
pub(crate) fn with_port_or(address: &str, port: u16) -> String {
    if address.parse::<u16>().is_ok() {
        // A port alone: this machine's own programs, as without any address.
        return format!("{LOOPBACK}:{address}");
    }
    let after_brackets = address.rsplit(']').next().unwrap_or(address);
    let bare_ipv6 = !address.starts_with('[') && address.matches(':').count() > 1;
    if bare_ipv6 {
        format!("[{address}]:{port}")
    } else if after_brackets.contains(':') {
        address.to_owned()
    } else {
        format!("{address}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_listed_or_none() {
        assert_eq!("2, 0".parse(), Ok(Indices(vec![2, 0])));
        assert_eq!("none".parse(), Ok(Indices(vec![])));
        for text in ["", "0,", "gpu", "-1"] {
            assert!(text.parse::<Indices>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_that_no_clock_can_hold_is_refused() {
        assert!(
            std::time::Instant::now()
                .checked_add(std::time::Duration::from_secs(MOST_SECONDS))
                .is_some()
        );
        let serve = <Args as clap::Args>::augment_args(clap::Command::new("serve"));
        let named = |arg: &&clap::Arg| {
            arg.get_value_names()
                .is_some_and(|names| names.iter().any(|name| name.starts_with("SECONDS")))
        };
        let flags: Vec<_> =
            serve.get_arguments().filter(named).filter_map(clap::Arg::get_long).collect();
        assert!(flags.len() >= 3, "{flags:?}");
        for flag in flags {
            let with = |time: u64| {
                serve.clone().try_get_matches_from(["serve".to_owned(), format!("--{flag}={time}")])
            };
            assert!(
                with(60).is_ok() && with(u64::MAX).is_err() && with(MOST_SECONDS + 1).is_err(),
                "--{flag}"
            );
        }
    }

    #[test]
    fn an_address_gets_the_usual_port() {
        for (given, wanted) in [
            ("127.0.0.1", "127.0.0.1:9470"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("gpu1", "gpu1:9470"),
            ("[::1]", "[::1]:9470"),
            ("[::1]:80", "[::1]:80"),
            ("::", "[::]:9470"),
        ] {
            assert_eq!(with_port(given), wanted);
        }
    }
}

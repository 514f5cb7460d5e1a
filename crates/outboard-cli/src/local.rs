//! `local`: this machine's own devices, by a server that is a program's own and ends with it.
//!
//! The server holds one end of a pipe, and this process and all that it starts hold the other one:
//! when the last of them has ended, the server does, too.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use miette::{IntoDiagnostic, Result, WrapErr};
use outboard_client::target::{Target, Targets};
use outboard_transport::Endpoint;
use outboard_wire::Code;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::driver::{self, Choice};
use crate::environment;
use crate::failure::Failure;
use crate::private_folder::PrivateFolder;

/// The driver library of such a server, as `outboard serve --driver` takes it.
const DRIVER: &str = "OUTBOARD_LOCAL_DRIVER";

/// The flag of a server that its parent looks after.
pub(crate) const FLAG: &str = "private";

/// What the server writes to its standard output when clients can connect.
const READY: &str = "ready";

/// The server's socket and its log, in a folder that only this user can enter.
const SOCKET: &str = "socket";
const LOG: &str = "log";

/// Sessions end with their programs, however long these go on.
const DRAIN: &str = "3000000000";

/// A server for this process and what it starts.
pub(crate) struct Server {
    address: Endpoint,
    /// The server ends once nobody holds it.
    lifeline: OwnedFd,
}

/// Starts a server if this machine's own devices are among the targets, which then have its
/// address.
pub(crate) fn serve(targets: Targets) -> Result<(Targets, Option<Server>)> {
    if !targets.has_local() {
        return Ok((targets, None));
    }
    let server = Server::start()?;
    Ok((targets.with_local(&server.address), Some(server)))
}

/// Fails if this machine's own devices are among the targets: there is no process whose end would
/// be the server's.
pub(crate) fn refuse(servers: &[Target]) -> Result<(), Failure> {
    if servers.iter().all(|server| server.address != Endpoint::Local) {
        return Ok(());
    }
    let message = "`local` is offered by a server that ends with `outboard run`, so there is nothing to print for others";
    let help = "start the programs below one `outboard run --server ... -- sh`, or start `outboard serve` and name it";
    Err(Failure::new(Code::BadUsage, message, help))
}

impl Server {
    fn start() -> Result<Server> {
        environment::forget_own_libraries();
        let driver = driver()?;
        let folder = PrivateFolder::create("local")
            .into_diagnostic()
            .wrap_err("cannot make a folder for the socket of a private server")?;
        let socket = folder.path().join(SOCKET);
        let log = File::create(folder.path().join(LOG)).into_diagnostic()?;
        let (end, lifeline) = pipe_with(PipeFlags::CLOEXEC).into_diagnostic()?;
        let mut command = Command::new("/proc/self/exe");
        command
            .args(["--config", "none", "serve", "--listen", "none", "--admin", "none"])
            .args(["--records", "none", "--warm", "0", "--tls", "off", "--drain", DRAIN])
            .arg("--driver")
            .arg(driver)
            .arg("--socket")
            .arg(&socket)
            .arg("--state")
            .arg(folder.path().join("state"))
            .arg(format!("--{FLAG}"));
        // What the machine's own server is told is not meant for this one.
        let others = std::env::vars_os().map(|(name, _)| name);
        others
            .filter(|name| name.to_string_lossy().starts_with("OUTBOARD_"))
            .filter(|name| name != "OUTBOARD_LIB" && !is_of_the_software_device(name))
            .for_each(|name| _ = command.env_remove(name));
        // Signals of the terminal are the program's.
        command.process_group(0).stdin(end).stdout(Stdio::piped()).stderr(log);
        let mut child = command
            .spawn()
            .into_diagnostic()
            .wrap_err("cannot start the private server of this machine's own devices")?;
        wait_for(&mut child, &folder)?;
        folder.keep();
        Ok(Server { address: Endpoint::Unix(socket.display().to_string()), lifeline })
    }

    /// Has programs that are started from now on keep the server, as long as they live.
    pub(crate) fn leave_to_programs(&self) -> io::Result<()> {
        Ok(fcntl_setfd(&self.lifeline, FdFlags::empty())?)
    }
}

fn is_of_the_software_device(name: &std::ffi::OsStr) -> bool {
    name.to_string_lossy().starts_with("OUTBOARD_CPU_")
}

/// The driver library: this machine's own driver, unless something else is asked for.
fn driver() -> Result<PathBuf> {
    let asked = std::env::var(DRIVER).ok().filter(|asked| !asked.is_empty());
    let choice = asked.map_or(Ok(Choice::Nvidia), |asked| asked.parse()).unwrap_or(Choice::Nvidia);
    if choice != Choice::Nvidia {
        return driver::choose(Some(choice));
    }
    match driver::nvidia_devices()? {
        Ok(_) => Ok(driver::NVIDIA.into()),
        Err(reason) => {
            let message = format!("this machine has no GPU to offer as `local`: {reason}");
            let help = format!(
                "mend or install NVIDIA's driver, or leave `local` out; {DRIVER}=cpu offers the software device"
            );
            Err(Failure::new(Code::NoGpu, message, help).into())
        }
    }
}

/// Waits until clients can connect. A server that has ended has said why.
fn wait_for(child: &mut Child, folder: &PrivateFolder) -> Result<()> {
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        // Without the line, the end of its output is its own end.
        let _ = BufReader::new(output).read_line(&mut line);
    }
    if line.trim_end() == READY {
        return Ok(());
    }
    let status = child.wait().into_diagnostic()?;
    let said = std::fs::read_to_string(folder.path().join(LOG)).unwrap_or_default();
    let message = format!(
        "the private server of this machine's own devices did not start ({status}); it said:\n{}",
        said.trim_end()
    );
    let help = "`outboard doctor serve` checks this machine as a server";
    Err(Failure::new(Code::ServerStart, message, help).into())
}

/// What the server itself does: tells its parent that clients can connect, and ends once nobody
/// holds the other end of its standard input.
pub(crate) fn attach(config: &mut outboard_supervisor::Config) -> io::Result<()> {
    config.on_ready = Some(Box::new(|_| {
        use io::Write as _;
        // A parent that has ended does not want to know.
        let _ = writeln!(io::stdout(), "{READY}");
    }));
    end_with_input()
}

/// Has this process asked to stop once its standard input has ended.
pub(crate) fn end_with_input() -> io::Result<()> {
    std::thread::Builder::new().name("lifeline".to_owned()).spawn(|| {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let this = rustix::process::getpid();
        let _ = rustix::process::kill_process(this, rustix::process::Signal::TERM);
    })?;
    Ok(())
}

/// Removes what the parent has made for the server.
pub(crate) fn clean_up(socket: Option<&Path>) {
    if let Some(folder) = socket.and_then(Path::parent) {
        let _ = std::fs::remove_dir_all(folder);
    }
}

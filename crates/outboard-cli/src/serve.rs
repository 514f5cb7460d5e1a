//! `outboard serve` and the worker processes it starts.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use miette::{IntoDiagnostic, Result};
use outboard_server::logs;
use outboard_server::supervisor::{self, Access, Config, Socket, WorkerCommand};
use outboard_transport::DEFAULT_PORT;

use crate::driver::Choice;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The driver library: `nvidia`, `cpu` for the software device, or a path. Without it NVIDIA's if that finds a
    /// device, else the software device.
    #[arg(long, value_name = "nvidia|cpu|PATH")]
    driver: Option<Choice>,
    /// The NVML library that answers for the devices; without it the one beside the driver library, or the loader's libnvidia-ml.so.1.
    #[arg(long, value_name = "PATH")]
    nvml: Option<PathBuf>,
    /// Where to listen, ADDRESS[:PORT]. Port 0 takes a free one, which the log names.
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDR")]
    listen: String,
    /// The Unix socket over which clients on this machine share memory with the server; `none` for none. Without it PORT.sock in the folder outboard
    /// of $XDG_RUNTIME_DIR or /run.
    #[arg(long, value_name = "PATH|none")]
    socket: Option<PathBuf>,
    /// Who may connect to the socket: the server's own user and root, its group too, or every user of the machine.
    #[arg(long, default_value = "owner", value_name = "owner|group|all")]
    socket_access: SocketAccess,
    /// How the log on standard error looks. OUTBOARD_LOG chooses what is in it.
    #[arg(long, default_value = "text", value_name = "text|json")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum SocketAccess {
    Owner,
    Group,
    All,
}

#[derive(clap::Args)]
pub(crate) struct WorkerArgs {
    /// The driver library.
    #[arg(long)]
    driver: PathBuf,
    /// The NVML library.
    #[arg(long)]
    nvml: Option<PathBuf>,
}

pub(crate) fn serve(args: Args) -> Result<()> {
    let format = match args.log_format {
        LogFormat::Text => logs::Format::Text,
        LogFormat::Json => logs::Format::Json,
    };
    logs::init(format);
    let driver = crate::driver::choose(args.driver)?;
    let mut arguments = vec![OsString::from("worker"), "--driver".into(), driver.into()];
    if let Some(nvml) = args.nvml {
        arguments.extend([OsString::from("--nvml"), nvml.into()]);
    }
    let worker = WorkerCommand::this_program(arguments);
    let mut config = Config::new(with_port(&args.listen), worker);
    config.log_format = format;
    config.socket = match args.socket {
        None => Socket::Usual,
        Some(path) if path.as_os_str() == "none" => Socket::Off,
        Some(path) => Socket::At(path),
    };
    config.access = match args.socket_access {
        SocketAccess::Owner => Access::Owner,
        SocketAccess::Group => Access::Group,
        SocketAccess::All => Access::All,
    };
    supervisor::serve(config).into_diagnostic()
}

pub(crate) fn worker(args: &WorkerArgs) -> ! {
    logs::init_from_env();
    crate::driver::work(&args.driver, args.nvml.as_deref())
}

pub(crate) fn check_driver() -> Result<()> {
    std::io::stdout().write_all(crate::driver::check().as_bytes()).into_diagnostic()
}

/// Adds the usual port to an address that has none.
fn with_port(address: &str) -> String {
    let after_brackets = address.rsplit(']').next().unwrap_or(address);
    let bare_ipv6 = !address.starts_with('[') && address.matches(':').count() > 1;
    if bare_ipv6 {
        format!("[{address}]:{DEFAULT_PORT}")
    } else if after_brackets.contains(':') {
        address.to_owned()
    } else {
        format!("{address}:{DEFAULT_PORT}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

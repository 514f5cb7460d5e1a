//! `outboard broker`.

use std::path::PathBuf;

use jiff::SignedDuration;
use miette::Result;
use outboard_broker::desk::Rules;
use outboard_broker::store::StoreError;
use outboard_broker::{BrokerError, Config, Security, quotas};
use outboard_broker_client::DEFAULT_PORT;
use outboard_pool::placement::Policy;
use outboard_supervisor::logs;
use outboard_wire::Code;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::failure::Failure;
use crate::serve::auth::state_folder;
use crate::serve::{LogFormat, with_port_or};
use crate::time::Span;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The address to listen at, ADDRESS[:PORT]. Port 0 takes a free one, which the log names.
    #[arg(long, default_value = "127.0.0.1", env = "OUTBOARD_BROKER_LISTEN", value_name = "ADDR")]
    listen: String,
    /// The folder with the leases, the key that signs them, the certificate and the tokens. Without
    /// it the folder broker in the one of `outboard serve`.
    #[arg(long, env = "OUTBOARD_BROKER_STATE", value_name = "DIR")]
    state: Option<PathBuf>,
    /// Which devices are preferred: those in use already, those used least, those with the least
    /// free memory that will do, or as `pack` with NVLink between the devices of a lease.
    #[arg(
        long,
        default_value = "pack",
        env = "OUTBOARD_BROKER_POLICY",
        value_name = "pack|spread|bestfit|linked"
    )]
    policy: Policy,
    /// What owners and groups may have, and who is in which group; docs/pool.md describes the file.
    #[arg(long, env = "OUTBOARD_BROKER_QUOTAS", value_name = "FILE")]
    quotas: Option<PathBuf>,
    /// How long a lease is good that nobody renews. A server that does not hear of the broker lets
    /// new sessions in for so long after a lease was ended.
    #[arg(long, default_value = "60s", env = "OUTBOARD_BROKER_LIFE", value_name = "TIME")]
    life: Span,
    /// For how long a lease is renewed at most.
    #[arg(long, default_value = "7d", env = "OUTBOARD_BROKER_LONGEST", value_name = "TIME")]
    longest: Span,
    /// The broker's certificate chain in PEM. Without it, the broker makes a certificate, which
    /// others recognise by its fingerprint.
    #[arg(long, env = "OUTBOARD_BROKER_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    #[arg(long, env = "OUTBOARD_BROKER_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authorities in PEM: who has a certificate of one of them is known by its common name, and
    /// has the role that its organizational unit says.
    #[arg(long, env = "OUTBOARD_BROKER_CLIENT_CA", value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Let everybody who reaches the broker see its devices and how they are used, without names of
    /// owners.
    #[arg(long, env = "OUTBOARD_BROKER_OPEN_VIEW")]
    open_view: bool,
    /// The format of the log on standard error. OUTBOARD_LOG chooses its contents.
    #[arg(long, default_value = "text", value_name = "text|json")]
    log_format: LogFormat,
}

/// The folder of a broker that is told no other.
pub(crate) fn usual_state() -> Option<PathBuf> {
    state_folder(None).map(|folder| folder.join("broker"))
}

/// The shortest life of a lease: servers renew it about once a second.
const SHORTEST_LIFE: SignedDuration = SignedDuration::from_secs(5);

pub(crate) fn broker(args: Args) -> Result<()> {
    logs::init(args.log_format.of_logs());
    // From here on it reads keys and tokens.
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "a crash of this broker could leave its keys in a core file");
    }
    let state = args.state.or_else(usual_state).ok_or_else(|| {
        let sentence = "there is no folder for what the broker keeps: HOME is not set";
        Failure::new(Code::FileUnusable, sentence, "name it with --state DIR")
    })?;
    let mut rules = Rules {
        policy: args.policy,
        life: args.life.0,
        longest: args.longest.0,
        ..Rules::default()
    };
    if rules.life < SHORTEST_LIFE || rules.longest < rules.life {
        let sentence = "a lease needs at least 5 s of life, and may not be for less than its life";
        let help = "set --life to 5s or more, and --longest to as much or more";
        return Err(Failure::new(Code::BadUsage, sentence, help).into());
    }
    if let Some(path) = &args.quotas {
        quotas::read(path, &mut rules).map_err(|error| {
            let help = "docs/pool.md describes the file";
            Failure::new(Code::FileUnusable, error.to_string(), help)
        })?;
    }
    let (certificate, key, client_ca) = (args.tls_cert, args.tls_key, args.client_ca);
    let config = Config {
        listen: with_port_or(&args.listen, DEFAULT_PORT),
        state,
        security: Security { certificate, key, client_ca },
        rules,
        open_view: args.open_view,
    };
    outboard_broker::run(&config).map_err(|error| cannot(&error).into())
}

fn cannot(error: &BrokerError) -> Failure {
    let (code, help) = match error {
        BrokerError::Listen { .. } => (
            Code::CannotListen,
            "another program may have the port (`ss -ltnp` shows which): choose one with --listen ADDRESS:PORT",
        ),
        BrokerError::Auth(error) => (
            error.code(),
            "check the path, whose it is and what others may do to it; --state DIR names another folder",
        ),
        BrokerError::Store(StoreError::InUse { .. }) => {
            (Code::BrokerInUse, "stop the other broker, or name another folder with --state DIR")
        }
        BrokerError::Store(StoreError::Unusable { .. }) => (
            Code::FileUnusable,
            "check whose the folder is, and that its file system has room and works",
        ),
        BrokerError::System(_) => {
            (Code::FileUnusable, "check the limits on processes and open files (`ulimit -a`)")
        }
    };
    Failure::new(code, error.to_string(), help)
}

//! `outboard broker`.

use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use miette::Result;
use outboard_broker::desk::Rules;
use outboard_broker::store::{BadEtcd, Cluster, EtcdAddress, StoreError, Trust, add_key};
use outboard_broker::{BrokerError, Config, Security, Shared};
use outboard_broker_client::{DEFAULT_PORT, Url};
use outboard_pool::placement::Policy;
use outboard_supervisor::logs;
use outboard_wire::Code;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::failure::Failure;
use crate::output::print;
use crate::serve::auth::state_folder;
use crate::serve::{LogFormat, with_port_or};
use crate::time::Span;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// The address to listen at, ADDRESS[:PORT]. Port 0 takes a free one, which the log names.
    #[arg(long, default_value = "127.0.0.1", env = "OUTBOARD_BROKER_LISTEN", value_name = "ADDR")]
    listen: String,
    /// The folder with the leases, the key that signs them, the certificate and the tokens. Without
    /// it the folder broker in the one of `outboard serve`.
    #[arg(long, env = "OUTBOARD_BROKER_STATE", value_name = "DIR", global = true)]
    state: Option<PathBuf>,
    #[command(flatten)]
    store: Store,
    /// Which devices are preferred: those in use already, those used least, those with the least
    /// free memory that will do, or as `pack` with NVLink between the devices of a lease.
    #[arg(
        long,
        default_value = "pack",
        env = "OUTBOARD_BROKER_POLICY",
        value_name = "pack|spread|bestfit|linked"
    )]
    policy: Policy,
    /// What owners and groups may have, and who is in which group; `outboard docs broker` describes
    /// the file. SIGHUP has the broker read it again.
    #[arg(long, env = "OUTBOARD_BROKER_QUOTAS", value_name = "FILE")]
    quotas: Option<PathBuf>,
    /// How long a lease is good that nobody renews. A server that does not hear of the broker lets
    /// new sessions in for so long after a lease was ended.
    #[arg(long, default_value = "60s", env = "OUTBOARD_BROKER_LIFE", value_name = "TIME")]
    life: Span,
    /// For how long a lease is renewed at most.
    #[arg(long, default_value = "7d", env = "OUTBOARD_BROKER_LONGEST", value_name = "TIME")]
    longest: Span,
    /// For how long devices that are free are kept unused at most, for the first who needs more of
    /// them. After that they are lent to those behind, as long as that delays nobody.
    #[arg(long, default_value = "1h", env = "OUTBOARD_BROKER_HOLD", value_name = "TIME")]
    hold: Span,
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
    /// Take servers that prove no key to which their name belongs, as those of release 0.1.0: who
    /// has a token of the role server can then speak for each of them that shares its owner.
    #[arg(long, env = "OUTBOARD_BROKER_ALLOW_UNPROVEN_SERVERS")]
    allow_unproven_servers: bool,
    /// The format of the log on standard error. OUTBOARD_LOG chooses its contents.
    #[arg(long, default_value = "text", value_name = "text|json")]
    log_format: LogFormat,
}

#[derive(clap::Subcommand)]
enum What {
    /// Make a new key that signs leases. A broker that runs takes it with SIGHUP; servers believe
    /// the key before until the last lease that it has signed is over.
    NewKey,
}

/// Several brokers of one pool.
#[derive(clap::Args)]
#[group(skip)]
struct Store {
    /// An etcd in which several brokers keep leases, etcd://HOST:PORT[,HOST:PORT...][/PREFIX]: one
    /// of them leads. Without it, leases are in a file that no other broker uses.
    #[arg(long, env = "OUTBOARD_BROKER_STORE", value_name = "URL")]
    store: Option<EtcdAddress>,
    /// Authorities that sign the certificates of etcd, in PEM. Needed unless etcd is on this
    /// machine.
    #[arg(long, env = "OUTBOARD_BROKER_STORE_CA", value_name = "FILE", requires = "store")]
    store_ca: Option<PathBuf>,
    /// The broker's certificate at etcd, in PEM.
    #[arg(
        long,
        env = "OUTBOARD_BROKER_STORE_CERT",
        value_name = "FILE",
        requires_all = ["store_ca", "store_key"]
    )]
    store_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    #[arg(long, env = "OUTBOARD_BROKER_STORE_KEY", value_name = "FILE", requires = "store_cert")]
    store_key: Option<PathBuf>,
    /// Where others reach this broker, https://HOST[:PORT]; those that stand by say so. Without it,
    /// where it listens.
    #[arg(long, env = "OUTBOARD_BROKER_URL", value_name = "URL", requires = "store")]
    url: Option<Url>,
}

impl Store {
    fn shared(self) -> Result<Option<Shared>, BadEtcd> {
        let Some(address) = self.store else { return Ok(None) };
        let own = self.store_cert.zip(self.store_key);
        let cluster = Cluster::new(&address, &Trust { authorities: self.store_ca, own })?;
        Ok(Some(Shared { cluster, url: self.url.map(|url| url.to_string()) }))
    }
}

/// The folder of a broker that is told no other.
pub(crate) fn usual_state() -> Option<PathBuf> {
    state_folder(None).map(|folder| folder.join("broker"))
}

fn folder(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    given.or_else(usual_state).ok_or_else(|| {
        let sentence = "there is no folder for what the broker keeps: HOME is not set";
        Failure::new(Code::FileUnusable, sentence, "name it with --state DIR")
    })
}

fn new_key(state: &Path) -> Result<()> {
    let key = add_key(state).map_err(|error| cannot(&error.into()))?;
    print(&format!(
        "{key} signs leases 15 seconds after brokers know it.\nIf the pool has several brokers, copy \
         lease.key to the others first. Then have each read it:\n`systemctl reload outboard-broker`, \
         or SIGHUP.\n"
    ))
}

/// The shortest life of a lease: servers renew it about once a second.
const SHORTEST_LIFE: SignedDuration = SignedDuration::from_secs(5);

pub(crate) fn broker(args: Args) -> Result<()> {
    if let Some(What::NewKey) = args.what {
        return new_key(&folder(args.state)?);
    }
    logs::init(args.log_format.of_logs());
    // From here on it reads keys and tokens.
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "a crash of this broker could leave its keys in a core file");
    }
    let state = folder(args.state)?;
    let rules = Rules {
        policy: args.policy,
        life: args.life.0,
        longest: args.longest.0,
        hold: args.hold.0,
        allow_unproven: args.allow_unproven_servers,
        ..Rules::default()
    };
    if rules.life < SHORTEST_LIFE || rules.longest < rules.life {
        let sentence = "a lease needs at least 5 s of life, and may not be for less than its life";
        let help = "set --life to 5s or more, and --longest to as much or more";
        return Err(Failure::new(Code::BadUsage, sentence, help).into());
    }
    let shared = args.store.shared().map_err(|error| {
        let help = "`outboard docs broker` says what several brokers of a pool need";
        Failure::new(Code::BadUsage, error.to_string(), help)
    })?;
    let (certificate, key, client_ca) = (args.tls_cert, args.tls_key, args.client_ca);
    let config = Config {
        listen: with_port_or(&args.listen, DEFAULT_PORT),
        state,
        shared,
        security: Security { certificate, key, client_ca },
        rules,
        quotas: args.quotas,
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
        BrokerError::Quotas(_) => (Code::FileUnusable, "`outboard docs broker` describes the file"),
        BrokerError::Store(StoreError::InUse { .. }) => {
            (Code::BrokerInUse, "stop the other broker, or name another folder with --state DIR")
        }
        BrokerError::Store(StoreError::Unusable { .. }) => (
            Code::FileUnusable,
            "check whose the folder is, and that its file system has room and works",
        ),
        BrokerError::Store(StoreError::OtherKey { .. }) => (
            Code::FileUnusable,
            "`outboard docs broker` says what the brokers of a pool have in common",
        ),
        BrokerError::Store(StoreError::Strange(_) | StoreError::NoLongerLeads(_)) => {
            (Code::StoreUnusable, "check etcd's log, and what this broker may do there")
        }
        BrokerError::System(_) => {
            (Code::FileUnusable, "check the limits on processes and open files (`ulimit -a`)")
        }
    };
    Failure::new(code, error.to_string(), help)
}

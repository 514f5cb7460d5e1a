//! Flags by which a command finds the broker and shows who it is.

use std::ffi::OsString;
use std::path::PathBuf;

use outboard_broker_client::{AskError, Blocking, Settings, SettingsError};
use outboard_wire::Code;

use crate::failure::Failure;

#[derive(Clone, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// The broker of the pool, https://HOST[:PORT], or all of them with commas between them. Also
    /// OUTBOARD_POOL.
    #[arg(long, value_name = "URL[,URL...]", help_heading = "Pool")]
    pub(crate) pool: Option<String>,
    #[command(flatten)]
    shown: Shown,
}

/// By what the broker is known, and knows who asks.
#[derive(Clone, clap::Args)]
#[group(skip)]
pub(crate) struct Shown {
    /// SHA-256 of the broker's certificate. Also OUTBOARD_POOL_FINGERPRINT.
    #[arg(long, value_name = "sha256:HEX", help_heading = "Pool")]
    pool_fingerprint: Option<String>,
    /// Authorities that sign brokers' certificates, in PEM. Also OUTBOARD_POOL_CA.
    #[arg(long, value_name = "FILE", help_heading = "Pool")]
    pool_ca: Option<PathBuf>,
    /// A file with the token for the broker. Also OUTBOARD_POOL_TOKEN_FILE; OUTBOARD_POOL_TOKEN
    /// holds a token itself.
    #[arg(long, value_name = "FILE", help_heading = "Pool")]
    pool_token_file: Option<PathBuf>,
    /// A certificate for the broker, in PEM. Also OUTBOARD_POOL_CERT.
    #[arg(long, value_name = "FILE", requires = "pool_key", help_heading = "Pool")]
    pool_cert: Option<PathBuf>,
    /// Its key, in PEM. Also OUTBOARD_POOL_KEY.
    #[arg(long, value_name = "FILE", requires = "pool_cert", help_heading = "Pool")]
    pool_key: Option<PathBuf>,
}

impl Args {
    /// Whether a flag, a variable or the file names a broker.
    pub(crate) fn is_set(&self) -> bool {
        self.url().is_some()
    }

    /// The address that a flag, a variable or the file names.
    pub(crate) fn url(&self) -> Option<String> {
        self.shown.settings(self.pool.as_deref()).url
    }

    /// The flags by which another command has the same access.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let Args { pool, shown } = self;
        let texts = [("--pool", pool), ("--pool-fingerprint", &shown.pool_fingerprint)];
        let texts = texts
            .into_iter()
            .filter_map(|(flag, value)| Some((flag, OsString::from(value.as_ref()?))));
        let files = [
            ("--pool-ca", &shown.pool_ca),
            ("--pool-token-file", &shown.pool_token_file),
            ("--pool-cert", &shown.pool_cert),
            ("--pool-key", &shown.pool_key),
        ];
        let files = files
            .into_iter()
            .filter_map(|(flag, value)| Some((flag, value.as_ref()?.clone().into_os_string())));
        texts.chain(files).flat_map(|(flag, value)| [OsString::from(flag), value]).collect()
    }

    /// The broker.
    pub(crate) fn broker(&self) -> Result<Blocking, Failure> {
        self.shown.broker(self.pool.as_deref())
    }

    /// The broker for who has that token, whatever else flags and environment say of one.
    pub(crate) fn broker_for(mut self, token_file: PathBuf) -> Result<Blocking, Failure> {
        self.shown.pool_token_file = Some(token_file);
        self.broker()
    }
}

impl Shown {
    /// What flags and environment say together: a flag counts more than a variable.
    fn settings(&self, pool: Option<&str>) -> Settings {
        let mut settings = Settings::from_env();
        if self.pool_fingerprint.is_some() || self.pool_ca.is_some() {
            (settings.fingerprint, settings.authorities) = (None, None);
        }
        if self.pool_token_file.is_some() {
            settings.token = None;
        }
        fn take<T: Clone>(given: &Option<T>, setting: &mut Option<T>) {
            if given.is_some() {
                setting.clone_from(given);
            }
        }
        take(&pool.map(str::to_owned), &mut settings.url);
        take(&self.pool_fingerprint, &mut settings.fingerprint);
        take(&self.pool_ca, &mut settings.authorities);
        take(&self.pool_token_file, &mut settings.token_file);
        take(&self.pool_cert, &mut settings.certificate);
        take(&self.pool_key, &mut settings.key);
        settings
    }

    /// The broker at that address, or else at the environment's.
    pub(crate) fn broker(&self, pool: Option<&str>) -> Result<Blocking, Failure> {
        to(&self.settings(pool))
    }
}

/// The broker that these settings name.
pub(crate) fn to(settings: &Settings) -> Result<Blocking, Failure> {
    let access = settings.access().map_err(|error| {
            let (code, help) = match &error {
                SettingsError::NoBroker | SettingsError::Url(_) => {
                    (Code::BadAddress, "write https://HOST, or https://HOST:PORT")
                }
                SettingsError::NothingToTrust(_) | SettingsError::Setup(_) => (
                    Code::BrokerNotTrusted,
                    "set what whoever runs the broker has given to you: OUTBOARD_POOL_FINGERPRINT=sha256:…",
                ),
                SettingsError::Half => (Code::BadUsage, "set both, or neither"),
                SettingsError::File { .. } => (Code::BadCredentials, "check the path and the file"),
            };
            Failure::new(code, error.to_string(), help)
        })?;
    Blocking::new(access).map_err(|error| {
        let sentence = format!("the command cannot ask a broker: {error}");
        let help = "check the limits on open files (`ulimit -a`)";
        Failure::new(Code::BrokerAway, sentence, help)
    })
}

/// Why a broker did not do what it was asked.
pub(crate) fn failed(error: &AskError) -> Failure {
    let (code, help) = match error {
        AskError::Away { .. } | AskError::Silent { .. } | AskError::Refused { status: 503, .. } => {
            (
                Code::BrokerAway,
                "is `outboard broker` running there? `outboard run --wait 10m` waits for it; programs that run already go on",
            )
        }
        AskError::NotTrusted { .. } => (
            Code::BrokerNotTrusted,
            "`outboard token --broker fingerprint` on the broker's machine prints the right one; if it is the one that you have, do not go on: somebody else answers",
        ),
        AskError::Strange { .. } | AskError::Refused { status: 401, .. } => (
            Code::BrokerNotTrusted,
            "check --pool, OUTBOARD_POOL_FINGERPRINT and OUTBOARD_POOL_TOKEN_FILE",
        ),
        AskError::Refused { status: 409, .. } => {
            (Code::NotAvailable, "`outboard pool` shows what there is and who has it")
        }
        AskError::Refused { status: 404, .. } => {
            (Code::BrokerDeclined, "`outboard pool leases` shows those that there are")
        }
        AskError::Refused { .. } => {
            (Code::BrokerDeclined, "ask whoever runs the broker, or use a token with another role")
        }
    };
    Failure::new(code, error.to_string(), help)
}

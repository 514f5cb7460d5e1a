//! Logs on standard error, for the binary to switch on.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use tracing_subscriber::EnvFilter;

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What a worker's environment says about logs, so that workers log as their supervisor does.
pub(crate) const FORMAT_VARIABLE: &str = "OUTBOARD_LOG_FORMAT";
const FILTER_VARIABLE: &str = "OUTBOARD_LOG";

/// Sends logs to standard error. `OUTBOARD_LOG` chooses what is logged, as in
/// `info,outboard_worker=debug`; the default is `info`. Does nothing if logs go somewhere already.
pub fn init(format: Format) {
    init_to(format, std::io::stderr);
}

/// As [`init`], in the format that the environment names: what a worker process does. The logs stay
/// where standard error is now, since the worker puts something else in its place.
pub fn init_from_env() {
    let format = match std::env::var(FORMAT_VARIABLE).as_deref() {
        Ok("json") => Format::Json,
        _ => Format::Text,
    };
    match rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3) {
        Ok(kept) => {
            let kept = Arc::new(File::from(kept));
            init_to(format, move || Lossy(Arc::clone(&kept)))
        }
        Err(_) => init(format),
    }
}

/// Where a worker logs, without waiting: what does not fit is thrown away, as a worker goes on
/// while no server reads.
struct Lossy(Arc<File>);

impl Write for Lossy {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = (&*self.0).write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether the operator has chosen what is logged.
pub(crate) fn is_chosen() -> bool {
    std::env::var(FILTER_VARIABLE).is_ok_and(|text| !text.trim().is_empty())
}

fn init_to<W>(format: Format, writer: W)
where
    W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    // An empty variable says nothing, rather than that nothing is to be said.
    let chosen = std::env::var(FILTER_VARIABLE).ok().filter(|text| !text.trim().is_empty());
    let filter = chosen
        .and_then(|text| EnvFilter::try_new(text).ok())
        .unwrap_or_else(|| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    // A second subscriber is refused: the first one stays.
    let _ = match format {
        Format::Text => builder.with_ansi(false).try_init(),
        Format::Json => builder.json().try_init(),
    };
}

impl Format {
    /// The value of the environment variable that makes a worker log this way.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Json => "json",
        }
    }
}

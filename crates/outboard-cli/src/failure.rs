//! Failures of the command: a sentence, its code, and what to do.

use std::fmt;
use std::io;
use std::path::Path;

use miette::{Diagnostic, MietteHandler, MietteHandlerOpts, ReportHandler};
use outboard_wire::{Code, plain_lines};

/// Something went wrong for the user.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    code: Code,
    message: String,
    help: String,
}

impl Failure {
    /// What happened, and what to do about it.
    pub(crate) fn new(code: Code, message: impl Into<String>, help: impl Into<String>) -> Failure {
        // Reports show the code themselves. It may quote a server's or the system's sentence.
        let message = plain_lines(&message.into());
        let ending = format!(" [{code}]");
        Failure {
            code,
            message: message.strip_suffix(&ending).map_or(message.clone(), str::to_owned),
            help: plain_lines(&help.into()),
        }
    }

    /// A file or folder is not as it should be.
    pub(crate) fn file(what: &str, path: &Path, error: &io::Error) -> Failure {
        let help = match error.kind() {
            io::ErrorKind::NotFound => "check the path",
            io::ErrorKind::PermissionDenied => {
                "check whose it is and what others may do to it: `ls -ld` shows both"
            }
            io::ErrorKind::StorageFull => {
                "the file system is full: make room, or choose another place"
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                "the file system is read-only: choose another place"
            }
            _ => "check the path, and that the file system has room and works",
        };
        Failure::new(Code::FileUnusable, format!("cannot {what} {}: {error}", path.display()), help)
    }

    /// Shows it, and ends with this status.
    pub(crate) fn end_with(self, status: i32) -> ! {
        eprintln!("Error: {:?}", miette::Report::new(self));
        std::process::exit(status)
    }

    /// Its code.
    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// What to do.
    pub(crate) fn help(&self) -> &str {
        &self.help
    }
}

impl Diagnostic for Failure {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.code))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.help))
    }
}

/// Shows errors as miette does, and where to read on.
struct Shown(MietteHandler);

impl ReportHandler for Shown {
    fn debug(&self, error: &dyn Diagnostic, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug(error, f)?;
        match error.code() {
            Some(code) => writeln!(f, "  `outboard explain {code}` says more."),
            None => Ok(()),
        }
    }
}

/// Formats an error as a part of another sentence.
struct Plain;

impl ReportHandler for Plain {
    fn debug(&self, error: &dyn Diagnostic, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{error}")?;
        for (number, more) in error.related().into_iter().flatten().enumerate() {
            write!(f, "{} {more}", if number == 0 { ':' } else { ';' })?;
        }
        if let Some(code) = error.code() {
            write!(f, " [{code}]")?;
        }
        error.help().map_or(Ok(()), |help| write!(f, "; {help}"))
    }
}

/// From now on errors are shown as [`Shown`] does; or plainly, if the server that this is to take
/// the place of will pass them on.
pub(crate) fn install_hook() {
    if std::env::var_os(outboard_supervisor::LISTENS_AT).is_some() {
        let _ = miette::set_hook(Box::new(|_| Box::new(Plain)));
        return;
    }
    // Whole lines: a terminal breaks them by itself, and what is copied from it or read from a pipe
    // has no path or command in two parts.
    let options = || MietteHandlerOpts::new().terminal_links(false).unicode(true).wrap_lines(false);
    // Fails only if a hook is installed already.
    let _ = miette::set_hook(Box::new(move |_| Box::new(Shown(options().build()))));
}

/// Ends as clap does for a command line that it does not understand, but with the code.
pub(crate) fn bad_usage(error: &clap::Error) -> ! {
    if error.use_stderr() {
        // Nobody is left to tell.
        let _ = error.print();
        let code = Code::BadUsage;
        eprintln!("\n{code}: `outboard explain {code}` says more.");
        std::process::exit(error.exit_code());
    }
    error.exit()
}

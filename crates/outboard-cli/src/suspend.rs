//! `outboard suspend-helper`: does to one worker what only another process can.

use std::path::PathBuf;

use outboard_control::suspension::Action;
use outboard_worker::suspend;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The driver library.
    #[arg(long)]
    driver: PathBuf,
    /// What to do.
    action: Action,
    /// The worker's process.
    process: u32,
}

pub(crate) fn suspend(args: &Args) -> miette::Result<()> {
    // SAFETY: the supervisor's user chose the file as a CUDA driver library.
    let outcome = unsafe { suspend::run(&args.driver, args.action, args.process) };
    if let Err(reason) = outcome {
        // For the supervisor's log, as it is.
        eprintln!("{reason}");
        std::process::exit(1);
    }
    Ok(())
}

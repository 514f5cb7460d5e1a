//! `cargo xtask codegen`.

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only check that the checked-in output is up to date.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    anyhow::bail!("codegen is not written yet (check: {})", args.check)
}

//! `cargo xtask facts`: extracts what the CUDA headers say into `api/facts/` and `outboard-abi`.

#[cfg(feature = "facts")]
mod cufile;
#[cfg(feature = "facts")]
mod extract;
#[cfg(feature = "facts")]
mod library;
#[cfg(feature = "facts")]
mod nccl;
#[cfg(feature = "facts")]
mod nvml;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder that holds cuda.h, cudaTypedefs.h and nvml.h; by default that of the toolchain in
    /// .venv.
    #[arg(long)]
    include: Option<std::path::PathBuf>,
    /// Folder that holds nccl.h, as of the wheel nvidia-nccl-cu13; without it, NCCL's facts stay.
    #[arg(long)]
    nccl: Option<std::path::PathBuf>,
    /// Folder that holds cufile.h, as of the wheel nvidia-cufile; without it, cuFile's facts stay.
    #[arg(long)]
    cufile: Option<std::path::PathBuf>,
}

#[cfg(feature = "facts")]
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let root = crate::util::root();
    let default = || root.join(".venv/lib/python3/site-packages/nvidia/cu13/include");
    let include = args.include.clone().unwrap_or_else(default);
    extract::run(&root, &include)?;
    nvml::run(&root, &include)?;
    args.nccl.as_deref().map_or(Ok(()), |nccl| nccl::run(&root, &include, nccl))?;
    args.cufile.as_deref().map_or(Ok(()), |cufile| cufile::run(&root, &include, cufile))
}

#[cfg(not(feature = "facts"))]
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let include = args
        .include
        .as_deref()
        .map(|dir| format!(" --include {}", dir.display()))
        .unwrap_or_default();
    anyhow::bail!(
        "reading C headers needs libclang: `pip install libclang`, set LIBCLANG_PATH to its folder `clang/native`, then run \
         `cargo run -p xtask --features facts -- facts{include}`"
    )
}

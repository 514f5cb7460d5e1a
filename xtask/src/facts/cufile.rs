//! The facts of `cufile.h`: its functions into `api/facts/cufile-1.20.toml`. Its few structures are
//! those of `outboard-libcufile`.

use std::path::Path;

use anyhow::Result;

use super::library::{facts_toml, read};

/// Extracts the facts from `cufile.h` in `folder` into the checkout at `root`. The header needs
/// that of the driver, in `include`.
pub(crate) fn run(root: &Path, include: &Path, folder: &Path) -> Result<()> {
    let (_, symbols) = read("cufile.h", folder, include, &[])?;
    let facts = facts_toml("cufile.h 1.20", "CUfileError_t", &symbols);
    std::fs::write(root.join("api/facts/cufile-1.20.toml"), facts)?;
    println!("{} symbols of cufile.h", symbols.len());
    Ok(())
}

//! The last release, as the client or as the server of this source.

use anyhow::{Context, Result};

use super::runs::{
    Came, SMALL, SMALLEST, arm_client_of, arm_dist, arm_server_of, chosen, first, server,
};
use crate::compared;
use crate::cross::Target;
use crate::mixed::{self, Earlier, PROGRAMS};
use crate::stage::Dist;

pub(super) fn client(_whole: bool) -> Result<Came> {
    run(Earlier::Client)
}

pub(super) fn server_side(_whole: bool) -> Result<Came> {
    run(Earlier::Server)
}

pub(super) fn arm_client(_whole: bool) -> Result<Came> {
    arm_client_of(&arm_release()?, &Dist::laid_out()?, Some(&programs()))
}

pub(super) fn arm_client_of_this_source(_whole: bool) -> Result<Came> {
    arm_client_of(&arm_dist()?, &mixed::release()?, Some(&programs()))
}

pub(super) fn arm_server(_whole: bool) -> Result<Came> {
    arm_server_of(&Dist::laid_out()?, &arm_release()?)
}

pub(super) fn arm_server_of_this_source(_whole: bool) -> Result<Came> {
    arm_server_of(&mixed::release()?, &arm_dist()?)
}

/// The last release for aarch64.
fn arm_release() -> Result<Dist> {
    mixed::release_for(Target::named("aarch64").context("a kind of machines")?)
}

/// What `cargo xtask mixed` runs, and the program whose time counts.
fn programs() -> Vec<&'static str> {
    PROGRAMS.into_iter().chain([SMALLEST]).collect()
}

fn run(earlier: Earlier) -> Result<Came> {
    let (old, new) = (mixed::release()?, Dist::laid_out()?);
    let same = earlier.run(&old, &new)?;
    let (client, serving) = match earlier {
        Earlier::Client => (&old, &new),
        Earlier::Server => (&new, &old),
    };
    let (plain, mixed) = (server(&new)?, server(serving)?);
    let first = first(
        SMALL,
        &chosen(false)?,
        |case| compared::here(&new, &plain, case),
        |case| compared::here(client, &mixed, case),
    )?;
    let what = format!("{same} of {same} runs of test programs print the same");
    Ok(Came { what, first: Some(first) })
}

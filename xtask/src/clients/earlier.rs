//! The last release, as the client or as the server of this source.

use anyhow::Result;

use super::runs::{Came, SMALL, chosen, first, server};
use crate::compared;
use crate::mixed::{self, Earlier};
use crate::stage::Dist;

pub(super) fn client(_whole: bool) -> Result<Came> {
    run(Earlier::Client)
}

pub(super) fn server_side(_whole: bool) -> Result<Came> {
    run(Earlier::Server)
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

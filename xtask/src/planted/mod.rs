//! `cargo xtask planted`: plants the faults of `tests/planted/`, one at a time, in a copy of the
//! committed source, and runs the tests that are said to find each.
//!
//! A suite that was changed must find what it found before: `--revision` plants the same faults in
//! another commit, whose own tests then look for them.

#[cfg(test)]
mod checks;
mod fault;
mod seek;
mod table;
mod tree;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

use crate::{mixed, programs, util};
use fault::{Fault, Search};
use seek::Verdict;
use table::Row;
use tree::Tree;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these faults, by the names of their files.
    names: Vec<String>,
    /// Only list the faults.
    #[arg(long)]
    list: bool,
    /// Do not first run the tests without a fault.
    #[arg(long)]
    skip_clean: bool,
    /// The commit in which faults are planted, and whose tests look for them.
    #[arg(long, value_name = "REV", default_value = "HEAD")]
    revision: String,
    /// How many copies of the source are used at once, each with a target folder of its own.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Where copies and target folders are; target/planted by default.
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
    /// A target folder that new ones begin as a copy of, so that dependencies are not built again.
    #[arg(long, value_name = "FOLDER")]
    base: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let faults = chosen(Fault::all()?, &args.names)?;
    if args.list {
        return util::print(&table::list(&faults));
    }
    let searches = searches(&faults);
    let programs = programs::dir();
    if searches.iter().any(Search::needs_installation) && !programs.join("suite.tsv").is_file() {
        bail!("the test programs are not compiled; `cargo xtask programs` does it");
    }
    let commit = mixed::resolve(&args.revision)?;
    let into = args.into.clone().unwrap_or_else(|| util::target_dir().join("planted"));
    let jobs = args.jobs.clamp(1, faults.len().max(1));
    let trees = (1..=jobs).map(|number| {
        let folder = std::path::absolute(into.join(number.to_string()))?;
        Tree::make(&folder, &commit, args.base.as_deref(), util::processors() / jobs)
    });
    let trees = Trees(Mutex::new(trees.collect::<Result<_>>()?));
    if !args.skip_clean {
        util::step("running the tests without a fault");
        util::for_each(&searches, jobs, |search| trees.with(|tree| seek::clean(tree, search)))?;
    }
    let rows = Mutex::new(Vec::new());
    util::for_each(&faults.iter().collect::<Vec<_>>(), jobs, |&fault| {
        util::step(&format!("planting {}", fault.name));
        let row = trees.with(|tree| Row::of(fault, || seek::seek(tree, fault)));
        eprintln!("    {}: {}", fault.name, row.verdict);
        rows.lock().unwrap_or_else(PoisonError::into_inner).push(row);
        Ok(())
    })?;
    let mut rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    rows.sort_by(|one, other| one.fault.name.cmp(&other.fault.name));
    util::print(&table::table(&rows))?;
    let left = rows.iter().filter(|row| !matches!(row.verdict, Verdict::Found(_))).count();
    match left {
        0 => Ok(()),
        _ => bail!("{left} of {} faults were not found", rows.len()),
    }
}

/// Those of these names, or all.
fn chosen(mut faults: Vec<Fault>, names: &[String]) -> Result<Vec<Fault>> {
    if let Some(unknown) = names.iter().find(|name| faults.iter().all(|one| one.name != **name)) {
        bail!("there is no fault {unknown} in tests/planted; --list shows those that there are");
    }
    faults.retain(|fault| names.is_empty() || names.contains(&fault.name));
    Ok(faults)
}

/// What all of them are found by, each once, those of one program of tests together.
fn searches(faults: &[Fault]) -> Vec<Search> {
    let mut all: Vec<Search> = faults.iter().flat_map(|fault| fault.found_by.clone()).collect();
    all.sort();
    all.dedup();
    all
}

/// The trees that nobody uses.
struct Trees(Mutex<Vec<Tree>>);

impl Trees {
    /// Does something in one of them. No more are asked for at once than there are.
    fn with<T>(&self, work: impl FnOnce(&Tree) -> T) -> T {
        let free = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tree = free().pop().expect("there is a tree for each job");
        let done = work(&tree);
        free().push(tree);
        done
    }
}

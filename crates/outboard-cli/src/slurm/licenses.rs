//! Licences, as Slurm writes them: `rgpu:2,matlab:1`.

/// How many of a licence there are in a list; one without a number counts once.
pub(super) fn count(list: &str, license: &str) -> Result<u32, String> {
    let mut sum = 0_u32;
    for entry in list.split(',').map(str::trim) {
        let (name, number) = entry.split_once(':').unwrap_or((entry, "1"));
        if name == license {
            let wrong = || format!("`{entry}` is no number of licences");
            let number: u32 = number.parse().map_err(|_| wrong())?;
            sum = sum.checked_add(number).ok_or_else(wrong)?;
        }
    }
    Ok(sum)
}

/// The line of slurm.conf with so many of a licence beside others.
pub(super) fn line(others: Option<&str>, license: &str, number: usize) -> String {
    let others = others.map(|others| format!("{others},")).unwrap_or_default();
    format!("Licenses={others}{license}:{number}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_each_licence() {
        for (list, wanted) in
            [("", 0), ("rgpu:2", 2), ("matlab:4,rgpu", 1), ("rgpux:5", 0), ("rgpu:1, rgpu:2", 3)]
        {
            assert_eq!(count(list, "rgpu"), Ok(wanted), "{list}");
        }
        assert!(count("rgpu:x", "rgpu").is_err() && count("rgpu:-1", "rgpu").is_err());
    }

    #[test]
    fn others_stay_in_the_line() {
        assert_eq!(line(None, "rgpu", 3), "Licenses=rgpu:3\n");
        assert_eq!(line(Some("matlab:10"), "rgpu", 0), "Licenses=matlab:10,rgpu:0\n");
    }
}

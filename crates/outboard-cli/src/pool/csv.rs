//! Tables as comma-separated values (RFC 4180).

use super::Table;

fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

pub(super) fn text(table: &Table) -> String {
    let heads = table.heads.iter().map(|head| head.to_ascii_lowercase().replace(' ', "_"));
    let line = |fields: Vec<String>| fields.join(",") + "\r\n";
    let mut text = line(heads.collect());
    for row in &table.rows {
        text += &line(row.iter().map(|cell| field(cell)).collect());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_are_quoted() {
        let rows = vec![vec!["a,\"b\"".to_owned(), "c".to_owned()]];
        let table = Table { heads: vec!["OWNER", "GIB SECONDS"], rows, none: "" };
        assert_eq!(text(&table), "owner,gib_seconds\r\n\"a,\"\"b\"\"\",c\r\n");
    }
}

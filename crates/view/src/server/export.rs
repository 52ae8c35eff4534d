//! Runs as one HTML file: the page with their data in it, which needs no server.

use super::answers;
use crate::runs::Store;

/// The modules of the page, by the names under which they import each other.
const MODULES: [(&str, &str); 7] = [
    ("data", include_str!("../page/data.js")),
    ("chart", include_str!("../page/chart.js")),
    ("text", include_str!("../page/text.js")),
    ("group", include_str!("../page/group.js")),
    ("media", include_str!("../page/media.js")),
    ("views", include_str!("../page/views.js")),
    ("app", include_str!("../page/app.js")),
];

/// The file's text.
pub fn html(store: &Store) -> String {
    // A module in an address has no folder to find others in: it names them, and the page says where they are.
    let named = MODULES.iter().fold(MODULES.map(|(_, text)| text.to_owned()), |texts, (name, _)| {
        texts.map(|text| text.replace(&format!("from './{name}.js'"), &format!("from '{name}'")))
    });
    let address = |text: &str| format!("data:text/javascript;base64,{}", base64(text.as_bytes()));
    let imports: serde_json::Map<String, serde_json::Value> =
        MODULES.iter().zip(&named).map(|((name, _), text)| ((*name).to_owned(), address(text).into())).collect();
    let icon = format!("data:image/svg+xml;base64,{}", base64(include_bytes!("../page/favicon.svg")));
    // Nothing in the data can end the element that holds it.
    let data = answers::everything(store).to_string().replace('<', "\\u003c");
    let scripts = format!(
        "<script type=\"application/json\" id=\"rushlight-data\">{data}</script>\n<script type=\"importmap\">{}</script>\n\
         <script type=\"module\">import 'app';</script>",
        serde_json::json!({ "imports": imports })
    );
    include_str!("../page/index.html")
        .replace(
            "<link rel=\"stylesheet\" href=\"/style.css\">",
            &format!("<style>{}</style>", include_str!("../page/style.css")),
        )
        .replace("<script type=\"module\" src=\"/app.js\"></script>", &scripts)
        .replace("/favicon.svg", &icon)
}

/// Bytes as text, six bits a character.
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let bits = part.iter().fold(0u32, |all, byte| all << 8 | u32::from(*byte)) << (8 * (3 - part.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place)) as usize & 63] as char;
            text.push(if place <= part.len() { digit } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_bytes() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn a_page_that_asks_for_nothing() {
        let root = std::env::temp_dir().join(format!("rushlight-export-{}", std::process::id()));
        let run = root.join("a");
        std::fs::create_dir_all(&run).unwrap();
        std::fs::write(run.join("metrics.jsonl"), "{\"step\": 1, \"time\": 5.0, \"loss\": 0.5}\n").unwrap();
        std::fs::write(run.join("notes.json"), "{\"text\": \"</script><b>\", \"tags\": []}").unwrap();
        let store = Store::new(root.clone());
        store.read_now();
        let text = html(&store);
        std::fs::remove_dir_all(root).unwrap();
        assert!(!text.contains("src=\"/") && !text.contains("href=\"/"));
        assert!(text.contains("\\u003c/script>\\u003cb>") && text.contains("\"loss\""));
        let imports = text.split("importmap\">").nth(1).unwrap();
        assert!(
            ["data", "chart", "text", "group", "media", "views", "app"]
                .iter()
                .all(|m| imports.contains(&format!("\"{m}\":")))
        );
    }
}

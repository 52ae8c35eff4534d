//! Tokenizers and windows.

use crate::TempDir;
use rushlight_data::text::{Bpe, ByteTokenizer, CharTokenizer, TokenWindows, Tokenizer, split_words};
use rushlight_data::{DataLoader, Dataset, SampleRng};

#[test]
fn any_text_comes_back() {
    let bpe = Bpe::train("the theme of the thesis: them, then, there; naïve — 12 123", 300).unwrap();
    let mut rng = SampleRng::new(1);
    for length in 0..200 {
        let random = |rng: &mut SampleRng| {
            let high = [0x80, 0x800, 0x3000, 0x11_0000][rng.below(4).unwrap()];
            char::from_u32(rng.below(high).unwrap() as u32).unwrap_or(' ')
        };
        let text: String = (0..length).map(|_| random(&mut rng)).collect();
        assert_eq!(split_words(&text).collect::<String>(), text);
        assert_eq!(bpe.decode(&bpe.encode(&text).unwrap()).unwrap(), text);
        assert_eq!(ByteTokenizer.decode(&ByteTokenizer.encode(&text).unwrap()).unwrap(), text);
        let chars = CharTokenizer::new(&text);
        assert_eq!(chars.decode(&chars.encode(&text).unwrap()).unwrap(), text);
    }
}

#[test]
fn long_words_are_not_quadratic() {
    // Pairs of a's up to sixteen: many letters in one word.
    let bpe = Bpe::train(&"a".repeat(64), 260).unwrap();
    let text = "a".repeat(160_000);
    let tokens = bpe.encode(&text).unwrap();
    assert_eq!(tokens.len(), 10_000);
    assert_eq!(bpe.decode(&tokens).unwrap(), text);
}

#[test]
fn files_come_back() {
    let folder = TempDir::new();
    let (vocab, merges) = (folder.path().join("vocab.json"), folder.path().join("merges.txt"));
    let text = "one two  one\ntwo two one";
    let bpe = Bpe::train(text, 270).unwrap();
    bpe.save(&vocab, &merges).unwrap();
    let read = Bpe::from_files(&vocab, &merges).unwrap();
    assert_eq!(read.encode(text).unwrap(), bpe.encode(text).unwrap());
    assert_eq!(read.vocab_size(), bpe.vocab_size());
    assert!(std::fs::read_to_string(&merges).unwrap().contains("Ġ"));
    assert!(Bpe::from_files(folder.path().join("absent"), &merges).is_err());
}

#[test]
fn special_tokens_and_missing_bytes() {
    let bpe = Bpe::parse(r#"{"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}"#, "#version: 0.2\na b\n").unwrap();
    assert_eq!(bpe.encode("abba").unwrap(), [2, 1, 0]);
    assert_eq!(bpe.token("<|endoftext|>"), Some(3));
    assert_eq!(bpe.decode(&[2, 3]).unwrap(), "ab<|endoftext|>");
    assert!(bpe.encode("c").unwrap_err().to_string().contains("0x63"));
    assert!(bpe.decode(&[4]).is_err());
}

#[test]
fn damaged_vocabularies() {
    for (vocab, merges) in [
        ("", ""),
        ("[1]", ""),
        (r#"{"a": -1}"#, ""),
        (r#"{"a": 1.5}"#, ""),
        (r#"{"a": 4294967296}"#, ""),
        (r#"{"a": 1, "b": 1}"#, ""),
        (r#"{"a": 0, "b": 1}"#, "a b"),
        (r#"{"a": 0}"#, "a a a"),
        (r#"{"a": 0}"#, "a"),
        (r#"{"a": 0}"#, " a"),
    ] {
        assert!(Bpe::parse(vocab, merges).is_err(), "{vocab} {merges}");
    }
    assert!(Bpe::train("x", 255).is_err() && Bpe::train("x", usize::MAX).is_err());
    assert_eq!(Bpe::train("", 1000).unwrap().vocab_size(), 256);
    assert!(ByteTokenizer.decode(&[256]).is_err());
    assert!(CharTokenizer::new("ab").encode("c").is_err());
    assert!(CharTokenizer::new("ab").decode(&[2]).is_err());
}

#[test]
fn windows() {
    let data = TokenWindows::new((0..10u32).collect::<Vec<_>>(), 3).unwrap();
    assert_eq!(data.len(), 7);
    let (x, y) = data.get(6).unwrap();
    assert_eq!((x.to_vec::<i64>().unwrap(), y.to_vec::<i64>().unwrap()), (vec![6, 7, 8], vec![7, 8, 9]));
    assert!(data.get(7).is_err());
    let apart = data.clone().stride(4).unwrap();
    assert_eq!((apart.len(), apart.get(1).unwrap().0.to_vec::<i64>().unwrap()), (2, vec![4, 5, 6]));
    let (x, y) = DataLoader::new(data.clone(), 4).unwrap().iter().next().unwrap().unwrap();
    assert_eq!((x.shape(), y.to_vec::<i64>().unwrap()[9..].to_vec()), (&[4, 3][..], vec![4, 5, 6]));
    assert!(TokenWindows::new(vec![1u32, 2], 2).is_err() && TokenWindows::new(vec![1u32], 0).is_err());
    assert!(data.stride(0).is_err());
}

use std::{
    io::Write,
    time::{Duration, Instant},
};

use bytes::Bytes;
use flate2::{
    Compression, GzBuilder,
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};
use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;

use super::{MAX_RATIO, PIECE_BYTES, SMALL_BYTES, UnknownCoding, UnpackError, Unpacker};

/// All codings; `raw` is deflate without a zlib header.
const CODINGS: [&str; 5] = ["gzip", "deflate", "raw", "br", "zstd"];

fn pack(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let level = Compression::default();
    match coding {
        "gzip" => {
            let mut writer = GzEncoder::new(Vec::new(), level);
            writer.write_all(bytes).unwrap();
            writer.finish().unwrap()
        }
        "deflate" => {
            let mut writer = ZlibEncoder::new(Vec::new(), level);
            writer.write_all(bytes).unwrap();
            writer.finish().unwrap()
        }
        "raw" => {
            let mut writer = DeflateEncoder::new(Vec::new(), level);
            writer.write_all(bytes).unwrap();
            writer.finish().unwrap()
        }
        "br" => {
            let mut writer = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
            writer.write_all(bytes).unwrap();
            writer.into_inner()
        }
        "zstd" => zstd::encode_all(bytes, 3).unwrap(),
        _ => panic!("{coding}"),
    }
}

/// The name on the wire.
fn named(coding: &str) -> &str {
    if coding == "raw" { "deflate" } else { coding }
}

fn headers<'a>(lines: impl IntoIterator<Item = &'a str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append("content-encoding", HeaderValue::from_str(line).unwrap());
    }
    headers
}

fn unpacker(list: &str, bound: usize) -> Unpacker {
    Unpacker::from_headers(&headers([list]), bound)
        .unwrap()
        .unwrap()
}

/// The output of these pieces, and the bytes that were unpacked in any case.
fn unpack<'a>(
    mut unpacker: Unpacker,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Result<Vec<u8>, UnpackError>, usize) {
    let mut all = Vec::new();
    let mut out = vec![0; PIECE_BYTES];
    for piece in pieces {
        unpacker.push(Bytes::copy_from_slice(piece));
        loop {
            match unpacker.pull_output(&mut out) {
                Ok(Some(written)) => all.extend_from_slice(&out[..written]),
                Ok(None) => break,
                Err(error) => return (Err(error), all.len()),
            }
        }
    }
    let length = all.len();
    (unpacker.check_end().map(|()| all), length)
}

fn check(list: &str, packed: &[u8], expected: Result<&[u8], UnpackError>) {
    let expected = expected.map(<[u8]>::to_vec);
    let found = unpack(unpacker(list, 1 << 20), [packed]).0;
    assert_eq!(found, expected, "{list} in one piece");
    let found = unpack(unpacker(list, 1 << 20), packed.chunks(1)).0;
    assert_eq!(found, expected, "{list} byte by byte");
    for at in 0..packed.len() {
        let found = unpack(unpacker(list, 1 << 20), [&packed[..at], &packed[at..]]).0;
        assert_eq!(found, expected, "{list} cut at {at}");
    }
}

#[test]
fn every_coding_is_read_at_every_cut() {
    let text = "{\"a\":\"é\"}\n".repeat(40);
    for coding in CODINGS {
        check(
            named(coding),
            &pack(coding, text.as_bytes()),
            Ok(text.as_bytes()),
        );
        check(named(coding), &pack(coding, b""), Ok(b""));
        check(named(coding), b"", Ok(b""));
    }
    check("X-GZip", &pack("gzip", b"x"), Ok(b"x"));
}

#[test]
fn an_unknown_coding_is_refused_by_name() {
    for list in [
        "compress",
        "gzip, x",
        "gzip,gzip",
        "br, identity, zstd",
        "gzip;q=1",
    ] {
        let refused = Unpacker::from_headers(&headers([list]), 1).err();
        assert_eq!(refused, Some(UnknownCoding(list.into())));
    }
    for list in [&[][..], &[""], &["identity", "Identity, "]] {
        assert!(
            Unpacker::from_headers(&headers(list.iter().copied()), 1)
                .unwrap()
                .is_none()
        );
    }
}

#[test]
fn damaged_bodies_are_refused() {
    let text = b"damaged or not, that is the question".repeat(8);
    for coding in CODINGS {
        let name = named(coding);
        let whole = pack(coding, &text);
        for end in 1..whole.len() {
            let cut = unpack(unpacker(name, 1 << 20), [&whole[..end]]).0;
            assert_eq!(cut, Err(UnpackError::Damaged), "{coding} ends at {end}");
        }
        check(
            name,
            &[&whole[..], b"x"].concat(),
            Err(UnpackError::Damaged),
        );
        check(name, b"{\"no\":\"coding\"}", Err(UnpackError::Damaged));
    }
    for coding in ["gzip", "deflate"] {
        let mut wrong_sum = pack(coding, &text);
        *wrong_sum.last_mut().unwrap() ^= 1;
        check(coding, &wrong_sum, Err(UnpackError::Damaged));
    }
}

#[test]
fn members_and_frames_may_follow_each_other() {
    for coding in ["gzip", "zstd"] {
        let both = [
            pack(coding, b"one"),
            pack(coding, b""),
            pack(coding, b"two"),
        ]
        .concat();
        check(coding, &both, Ok(b"onetwo"));
    }
    let mut writer = GzBuilder::new()
        .extra(vec![7; 300])
        .filename("name")
        .comment("words")
        .write(Vec::new(), Compression::fast());
    writer.write_all(b"headed").unwrap();
    check("gzip", &writer.finish().unwrap(), Ok(b"headed"));
}

#[test]
fn windows_are_bounded_and_dictionaries_refused() {
    let text: Vec<u8> = (0..3 << 20).map(|at| (at % 251) as u8).collect();
    let frame = |log: u32| {
        let mut writer = zstd::Encoder::new(Vec::new(), 1).unwrap();
        writer.window_log(log).unwrap();
        writer.include_contentsize(false).unwrap();
        writer.write_all(&text).unwrap();
        writer.finish().unwrap()
    };
    let read = |packed: &[u8]| unpack(unpacker("zstd", 8 << 20), [packed]).0;
    assert_eq!(read(&frame(23)), Ok(text.clone()));
    assert_eq!(read(&frame(24)), Err(UnpackError::Damaged));
    // A frame that asks for dictionary 1: magic, descriptor, window, dictionary, an empty last block.
    let asks = [0x28, 0xb5, 0x2f, 0xfd, 0x01, 0x48, 0x01, 0x01, 0x00, 0x00];
    assert_eq!(read(&asks), Err(UnpackError::Damaged));
    let fdict = [0x78, 0xbb, 0, 0, 0, 1, 3, 0];
    let refused = unpack(unpacker("deflate", 1 << 20), [&fdict[..]]).0;
    assert_eq!(refused, Err(UnpackError::Damaged));
    // The mark of a large window, then its 30 bits.
    let large = unpack(unpacker("br", 1 << 20), [&[0x11, 0x1e, 0x03][..]]).0;
    assert_eq!(large, Err(UnpackError::Damaged));
}

#[test]
fn bombs_are_refused_early() {
    const BOMB: usize = 200 << 20;
    for coding in ["gzip", "deflate", "br", "zstd"] {
        let packed = zeros(BOMB, coding);
        assert!(packed.len() < 256 << 10, "{coding}: {}", packed.len());
        for size in [packed.len(), 7] {
            let begun = Instant::now();
            let (refused, length) = unpack(unpacker(coding, BOMB), packed.chunks(size));
            assert_eq!(refused, Err(UnpackError::Bomb), "{coding}");
            let most = packed.len() * MAX_RATIO + SMALL_BYTES;
            assert!(length <= most, "{coding}: {length}");
            // Far more than the refusal takes, far less than the whole bomb.
            assert!(begun.elapsed() < Duration::from_secs(2), "{coding}");
        }
    }
    // A skippable frame is skipped, however long it is.
    let skipped = [skippable(&vec![0; 8 << 20]), pack("zstd", b"text")].concat();
    let (text, _) = unpack(unpacker("zstd", 1 << 20), [&skipped[..]]);
    assert_eq!(text, Ok(b"text".to_vec()));
}

/// Packs `count` zeros without holding them in memory.
fn zeros(count: usize, coding: &str) -> Vec<u8> {
    let fill = |writer: &mut dyn Write| {
        let piece = vec![0; 1 << 20];
        for _ in 0..count >> 20 {
            writer.write_all(&piece).unwrap();
        }
    };
    let level = Compression::default();
    match coding {
        "gzip" => {
            let mut writer = GzEncoder::new(Vec::new(), level);
            fill(&mut writer);
            writer.finish().unwrap()
        }
        "deflate" => {
            let mut writer = ZlibEncoder::new(Vec::new(), level);
            fill(&mut writer);
            writer.finish().unwrap()
        }
        "br" => {
            let mut writer = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
            fill(&mut writer);
            writer.into_inner()
        }
        _ => {
            let mut writer = zstd::Encoder::new(Vec::new(), 1).unwrap();
            fill(&mut writer);
            writer.finish().unwrap()
        }
    }
}

/// A zstd frame that decoders skip.
fn skippable(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap();
    [&[0x50, 0x2a, 0x4d, 0x18], &length.to_le_bytes()[..], bytes].concat()
}

#[test]
fn the_size_limit_is_exact() {
    let text = vec![b'x'; 100_000];
    for coding in CODINGS {
        let packed = pack(coding, &text);
        let (all, _) = unpack(unpacker(named(coding), text.len()), [&packed[..]]);
        assert_eq!(all.unwrap(), text);
        let (refused, length) = unpack(unpacker(named(coding), text.len() - 1), [&packed[..]]);
        assert_eq!(refused, Err(UnpackError::TooMuch));
        assert!(length < text.len());
    }
}

proptest! {
    #[test]
    fn any_cut_of_any_coding_gives_the_same(
        text in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..600),
            "[a-c]{0,40}".prop_map(|word| word.repeat(1_000).into_bytes()),
        ],
        coding in prop::sample::select(&CODINGS[..]),
        cuts in prop::collection::vec(0usize..40_000, 0..8),
    ) {
        let packed = pack(coding, &text);
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut % (packed.len() + 1)).collect();
        cuts.extend([0, packed.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &packed[pair[0]..pair[1]]);
        let (unpacked, _) = unpack(unpacker(named(coding), 1 << 20), pieces);
        prop_assert_eq!(unpacked, Ok(text));
    }

    #[test]
    fn damage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), coding in 0usize..CODINGS.len(), at in 0usize..200, xor: u8) {
        let mut packed = pack(CODINGS[coding], &bytes);
        let at = at % packed.len();
        packed[at] ^= xor;
        let _ = unpack(unpacker(named(CODINGS[coding]), 1 << 20), [&packed[..]]);
        let _ = unpack(unpacker(named(CODINGS[coding]), 1 << 20), [&bytes[..]]);
    }
}

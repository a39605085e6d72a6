"""Which file names go with which label of the magika model: a rough truth to judge answers by.

Rough, since an extension is a promise and not a proof: a ``.txt`` may hold a table, a ``.conf``
anything. Names that promise nothing are left out of the judgement.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Extensions, and whole names of files that by custom have none, all in lower case.
_TABLE = """
appleplist: plist
asm: s asm
awk: awk
batch: bat cmd
bazel: bzl bazel
bib: bib
bmp: bmp
bzip: bz2
c: c h
cab: cab
chm: chm
clojure: clj
cmake: cmake
coff: obj o
cpp: cc cpp cxx h hh hpp
crt: crt cer pem
cs: cs
css: css
csv: csv
dart: dart
deb: deb
diff: diff patch
dockerfile: dockerfile
docx: docx
elf: so o elf
elixir: ex exs
eml: eml
epub: epub
erlang: erl hrl
flac: flac
fortran: f f90 f95
gemfile: gemfile
gif: gif
gitattributes: .gitattributes
gitmodules: .gitmodules
go: go
gradle: gradle
groovy: groovy
gzip: gz tgz
h5: h5 hdf5
haskell: hs
hcl: hcl tf
html: html htm xhtml
icns: icns
ico: ico
ics: ics
ignorefile: .gitignore .dockerignore
ini: ini cfg
ipynb: ipynb
jar: jar
java: java
javabytecode: class
javascript: js mjs cjs
jinja: jinja j2 jinja2
jp2: jp2
jpeg: jpg jpeg
json: json
jsonl: jsonl ndjson
julia: jl
kotlin: kt kts
latex: tex sty
lisp: lisp el lsp
lua: lua
m4: m4 ac
macho: dylib
makefile: makefile mk gnumakefile
markdown: md markdown
matlab: m
midi: mid midi
mp3: mp3
mp4: mp4
mum: mum
npy: npy
npz: npz
objectivec: m mm
ocaml: ml mli
odt: odt
ogg: ogg oga ogv
onnx: onnx
otf: otf
parquet: parquet
pascal: pas
pcap: pcap
pdf: pdf
pebin: exe dll
pem: pem crt key
perl: pl pm
php: php
pickle: pickle pkl pck
png: png
po: po pot
postscript: ps eps
powershell: ps1 psm1
pptx: pptx
prolog: prolog
proto: proto
python: py pyi pyw
pythonbytecode: pyc pyo
r: r
rdf: rdf
rpm: rpm
rst: rst
rtf: rtf
ruby: rb
rust: rs
scala: scala
scss: scss
sevenzip: 7z
sgml: sgml
shell: sh bash zsh
sql: sql
sqlite: sqlite db sqlite3
srt: srt
svg: svg
swift: swift
tar: tar
tcl: tcl
tiff: tif tiff
toml: toml
tsv: tsv
ttf: ttf
txt: txt
randomtxt: txt
typescript: ts tsx
vba: vba bas
verilog: v
vhdl: vhd vhdl
vtt: vtt
vue: vue
wasm: wasm
wav: wav
webm: webm
webp: webp
woff: woff
woff2: woff2
xlsx: xlsx
xml: xml xsl xslt xsd
xz: xz
yaml: yaml yml
zig: zig
zip: zip whl egg
"""

EXTENSIONS: dict[str, tuple[str, ...]] = {
    label: tuple(rest.split()) for label, rest in (line.split(":") for line in _TABLE.strip().splitlines())
}
KNOWN_EXTENSIONS = frozenset(known for row in EXTENSIONS.values() for known in row)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How many answers fit their names, of those names that promise a type at all."""

    agreed: int
    judged: int

    @property
    def share(self) -> float:
        """Return the agreeing part, 0..1; with nothing to judge, nothing agrees."""
        return self.agreed / self.judged if self.judged else 0.0


def extension(name: str) -> str:
    """Return what follows the last dot, in lower case, or the whole name of a file without one."""
    path = PurePosixPath(name.lower())
    return path.suffix[1:] or path.name


def agreement(labels: Sequence[str], names: Sequence[str]) -> Agreement:
    """Compare the model's labels with the names of the files, pair by pair."""
    judged = [(label, kind) for label, kind in zip(labels, map(extension, names), strict=True) if kind in KNOWN_EXTENSIONS]
    agreed = sum(kind in EXTENSIONS.get(label, ()) for label, kind in judged)
    return Agreement(agreed=agreed, judged=len(judged))

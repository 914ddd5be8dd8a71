#!/bin/bash
# conda-build calls this in the sources, with its variables: PREFIX, SP_DIR (of Python's packages), PYTHON, CMAKE_ARGS.
set -euo pipefail
cmake -S . -B build-conda -G Ninja -DCMAKE_BUILD_TYPE=Release -DUNSHARD_MOUNT=OFF -DUNSHARD_CUDA=OFF \
	-DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_INSTALL_RPATH="$PREFIX/lib" ${CMAKE_ARGS-} -DCMAKE_INSTALL_PREFIX="$PREFIX"
cmake --build build-conda --parallel "${CPU_COUNT:-1}"
cmake --install build-conda
rm "$PREFIX/lib/libunshard.a"

mkdir -p "$SP_DIR/unshard"
cp python/unshard/*.py python/unshard/py.typed "$SP_DIR/unshard"
(cd python && "$PYTHON" -B -c 'import sys, pathlib, build_backend as backend
into = pathlib.Path(sys.argv[1]) / f"{backend.stem()}.dist-info"
into.mkdir()
for name, text in backend.information().items():
    (into / name).write_text(text, "utf-8")' "$SP_DIR")

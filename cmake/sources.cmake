# cmake "-DSOURCES=A;B" -DTO=FILE -P sources.cmake: writes a hash of the library's sources as a C constant. Builds of the
# same sources read the same metadata alike, whoever built them, for whichever processor, as a program or a library.
cmake_minimum_required(VERSION 3.20)

set(all "")
foreach(file IN LISTS SOURCES)
  file(SHA256 ${file} hash)
  string(APPEND all "${hash}")
endforeach()
string(SHA256 all "${all}")
string(SUBSTRING ${all} 0 16 all)
file(WRITE ${TO} "/* Written by cmake/sources.cmake from all sources of the library. */\n#define UNS_SOURCES_HASH UINT64_C(0x${all})\n")

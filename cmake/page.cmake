# cmake -DFROM=DIR -DTO=FILE -P page.cmake: puts page.css and the scripts into page.html and writes the page as two C arrays,
# what is before the data and what is behind it.
cmake_minimum_required(VERSION 3.20)

foreach(part IN ITEMS html css)
  file(READ ${FROM}/page.${part} ${part} HEX)
endforeach()
# page.js is the last: it draws with what the others define.
foreach(script IN ITEMS diff values page)
  file(READ ${FROM}/${script}.js text HEX)
  string(APPEND js "${text}")
endforeach()
# In hexadecimal, no byte means anything to CMake. These are @STYLE@, @SCRIPT@ and @DATA@.
string(REPLACE "405354594c4540" "${css}" html "${html}")
string(REPLACE "4053435249505440" "${js}" html "${html}")
string(FIND "${html}" "404441544140" at)
math(EXPR behind "${at} + 12")
string(SUBSTRING "${html}" 0 ${at} head)
string(SUBSTRING "${html}" ${behind} -1 tail)

set(text "/* Written by cmake/page.cmake from tools/page. */\n#include \"page.h\"\n")
foreach(part IN ITEMS head tail)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," numbers "${${part}}")
  string(LENGTH "${${part}}" n)
  math(EXPR n "${n} / 2")
  string(APPEND text "const unsigned char page_${part}[] = {${numbers}};\nconst size_t page_${part}_len = ${n};\n")
endforeach()
file(WRITE ${TO} "${text}")

# Read by CMake when the tests' llama.cpp is built (install.sh): half of the time, the same library.
set(LLAMA_BUILD_COMMON OFF) # a plain variable, which hides the cached one that llama-cpp-python sets to ON
cmake_language(DEFER CALL set_target_properties llama PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
